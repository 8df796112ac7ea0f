"""Commands of `datalens`, one module each."""
