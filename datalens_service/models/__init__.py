"""Models: teachers, which stay private, and generators, which are released."""
