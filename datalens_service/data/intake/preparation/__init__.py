"""Conversion of images of many kinds to one size and mode, before they are uploaded."""
