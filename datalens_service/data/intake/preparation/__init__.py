"""Turning images of many kinds into one size and mode, before they are uploaded."""
