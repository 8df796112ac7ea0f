"""Attacks on what is released: lower bounds on leakage, for the owner alone."""
