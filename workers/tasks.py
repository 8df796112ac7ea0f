"""The one task, and what a Celery worker does beside it."""

from __future__ import annotations

from typing import Any

import structlog
from celery import signals

from datalens_service import logs
from datalens_service.errors import DatalensError, NotFound
from datalens_service.settings import Settings
from datalens_service.store.jobs import jobs
from workers.app import app
from workers.process.requeue import Redelivery
from workers.process.runtime import runtime
from workers.process.supervise_job import attend

log = structlog.get_logger()


@app.task(name="datalens.run_job")
def run_job(job_id: str) -> None:
    """Run a job to its end in a process of its own; torch is never imported in this one.

    A second delivery of the same id finds the job held or ended and does nothing.
    """
    shared = runtime()
    try:
        job = jobs.get(shared.database, str(job_id))
    except NotFound:
        log.warning("message names no job, dropped")
        return
    if not job.state.terminal:
        attend(shared.database, job.id, shared.stopping)


@signals.setup_logging.connect
def _log_as_we_do(**_: Any) -> None:
    """Celery leaves logging alone once somebody answers this."""
    logs.configure(Settings().log_level)


@signals.worker_init.connect
def _prepare(**_: Any) -> None:
    """Refuse to start on a database that is not in order, before a message is taken."""
    try:
        runtime()
    except DatalensError as error:
        log.error("worker cannot start", problem=error.slug, detail=error.detail)
        # Celery swallows any other exception of a signal's receiver.
        raise SystemExit(1) from error


@signals.worker_ready.connect
def _look_after_lost_jobs(**_: Any) -> None:
    Redelivery(app, runtime()).start()


@signals.worker_shutting_down.connect
def _give_jobs_back(**_: Any) -> None:
    """Let running jobs go back to the queue; the worker waits for their processes."""
    runtime().stopping.set()
