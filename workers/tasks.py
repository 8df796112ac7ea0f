"""The one task, and the worker behind it."""

from __future__ import annotations

from typing import Any

import structlog
from celery import signals

from datalens_service import logs
from datalens_service.errors import DatalensError
from datalens_service.gateways.startup import warn_of_unknown_variables
from datalens_service.settings import Settings
from workers.app import app
from workers.process.runtime import queue_worker

log = structlog.get_logger()


@app.task(name="datalens.run_job")
def run_job(_job_id: str) -> None:
    """A job was submitted: look at the database now.

    The worker runs whatever has waited longest, which need not be this job. A lost message costs two seconds, a
    second delivery nothing.
    """
    queue_worker().wake()


@signals.setup_logging.connect
def _log_as_we_do(**_: Any) -> None:
    """Celery leaves logging alone once somebody answers this."""
    logs.configure(Settings().log_level)


@signals.worker_init.connect
def _start(**_: Any) -> None:
    """Refuse to start on a database that is not in order; else take jobs, whether or not the broker answers."""
    _log_as_we_do()
    warn_of_unknown_variables()
    try:
        queue_worker().start()
    except DatalensError as error:
        log.error("worker cannot start", problem=error.slug, detail=error.detail)
        # Celery swallows any other exception of a signal's receiver.
        raise SystemExit(1) from error


@signals.worker_shutting_down.connect
def _give_jobs_back(**_: Any) -> None:
    queue_worker().stop()


@signals.worker_shutdown.connect
def _wait_for_processes(**_: Any) -> None:
    queue_worker().join()
