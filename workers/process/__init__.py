"""Processes that run jobs, and their recovery."""
