"""The one task, and the worker behind it: a message only wakes it.

Jobs whose message was lost, or that were interrupted, are found at its next turn.
"""

import functools
import threading
from typing import Any

import structlog
from celery import signals

from datalens_service.adapters.startup import start, warn_of_unknown_variables
from datalens_service.base import logs
from datalens_service.base.errors import DatalensError
from datalens_service.base.settings import Settings
from datalens_service.store.database import Database
from datalens_service.workers.app import app
from datalens_service.workers.process.health import HealthFile
from datalens_service.workers.process.job_loop import JobLoop
from datalens_service.workers.process.supervise_job import GRACE_SECONDS

log = structlog.get_logger()

_TURN_SECONDS = 2.0


class QueueWorker(JobLoop):
    """Runs one job at a time from the queue of the settings, in a thread of the worker."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._asked_to_stop = threading.Event()
        super().__init__(
            database, settings, self._asked_to_stop, slots=1, queue=settings.queue, turn_seconds=_TURN_SECONDS
        )
        self._health = HealthFile()
        self._thread = threading.Thread(target=self.run, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin to take jobs; the broker need not be there yet."""
        self._thread.start()

    def turned(self) -> None:
        self._health.touch()

    def stop(self) -> None:
        """Have the running job given back to the queue; returns at once."""
        self._asked_to_stop.set()
        self.wake()

    def join(self) -> None:
        """Wait until the job is given back."""
        self._thread.join(GRACE_SECONDS + _TURN_SECONDS)


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
