"""Teachers: everything in here is private until a mechanism has released a noisy sum of it."""
