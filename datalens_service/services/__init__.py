"""What the API, workers and the command line do for a user, without HTTP; errors of `store` pass through."""
