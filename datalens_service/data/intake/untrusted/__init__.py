"""Archives and images that nobody vouches for, read within limits."""
