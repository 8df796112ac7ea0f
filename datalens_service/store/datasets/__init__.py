"""Datasets, their uploads and validations, and stored files."""
