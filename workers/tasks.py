"""The one task, and the worker behind it."""

import functools
from typing import Any

import structlog
from celery import signals

from datalens_service import logs
from datalens_service.errors import DatalensError
from datalens_service.gateways.startup import start, warn_of_unknown_variables
from datalens_service.settings import Settings
from workers.app import app
from workers.process.queue_worker import QueueWorker

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


@functools.cache
def queue_worker() -> QueueWorker:
    """The worker of this process, its database audited; made before Celery takes a message.

    Raises:
        StoreUnavailable: The database does not answer or could lose charges.
        LedgerCorrupt: It does not belong to its ledger log.
    """
    settings = Settings()
    return QueueWorker(start(settings), settings)
