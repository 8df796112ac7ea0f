"""From the bytes of an upload to a data set: untrusted files, readers, the sandbox, preparation, assembly."""
