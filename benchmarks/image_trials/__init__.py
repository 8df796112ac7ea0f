"""Trials for images that look right: what samples of several released models look like, and what they teach."""
