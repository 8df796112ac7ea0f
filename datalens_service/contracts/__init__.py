"""What methods, extractors and generators of other packages must keep, tried on made-up records and images."""
