"""One reader for each upload format."""
