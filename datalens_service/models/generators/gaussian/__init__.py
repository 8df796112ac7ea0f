"""Generators that draw from Gaussians around class means."""
