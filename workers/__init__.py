"""Processes that run jobs: one per job, started by the local supervisor or by a Celery worker."""
