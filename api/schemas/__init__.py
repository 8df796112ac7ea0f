"""Requests and answers of the REST API."""
