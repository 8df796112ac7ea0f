"""Reads uploads in a confined process."""
