"""One module per revision, oldest first by number. There is no way back to an older schema."""
