"""From what a client asks for to a training specification, and what may be expected of it."""
