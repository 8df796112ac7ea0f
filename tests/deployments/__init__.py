"""Whole deployments with real processes and real servers, for tests and for scripts/chaos."""
