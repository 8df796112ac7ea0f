"""Accounting, budget and randomness: what every mechanism stands on."""
