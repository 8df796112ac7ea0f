"""Generators that draw by removing noise step by step."""
