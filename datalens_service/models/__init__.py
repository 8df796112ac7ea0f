"""Models: private teachers, released generators, and what trains a generator on released numbers."""
