"""Does for a user what the API, workers and the command line offer, without HTTP; errors of `store` pass through."""
