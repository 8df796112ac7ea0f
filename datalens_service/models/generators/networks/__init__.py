"""Generators that are one network from noise to an image."""
