"""The REST service on top of the library: HTTP in, problems or resources out."""
