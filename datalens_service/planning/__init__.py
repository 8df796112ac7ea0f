"""From a client's request to a training specification, and the results to be expected of it."""
