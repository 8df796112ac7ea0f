"""The way from the bytes of an upload to a data set: untrusted files, readers, sandbox, preparation, assembly."""
