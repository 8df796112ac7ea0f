"""Generators that draw by taking noise away step by step."""
