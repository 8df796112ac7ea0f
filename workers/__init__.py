"""Running jobs: one process per job, started by the local supervisor or by a Celery worker."""
