"""Datasets, their uploads, and stored files."""
