"""Accounting, budget and randomness: what every mechanism stands on.

Whatever needs dp_accounting, here and in the rooms above, raises WorkerUnavailable where it is not installed.
"""
