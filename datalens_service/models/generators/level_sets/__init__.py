"""Generators that draw drawings: outlines as level sets, their poses and topology."""
