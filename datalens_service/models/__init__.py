"""Models: private teachers, released generators, and the training of a generator on released numbers."""
