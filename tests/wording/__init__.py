"""Texts for readers: which there are in the source, and in whose words they are."""
