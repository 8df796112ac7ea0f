"""Checks of methods, extractors and generators of other packages, on made-up records and images."""
