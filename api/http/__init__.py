"""Middleware of every request, and answers that are files or streams."""
