"""One module per revision, oldest first by number."""
