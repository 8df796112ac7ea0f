"""Telling workers that there is a job. The database is the truth: a lost message costs time, a double one nothing."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from datalens_service.errors import DatalensError, WorkerUnavailable
from datalens_service.settings import Settings
from datalens_service.store import leases
from datalens_service.store.database import Database

if TYPE_CHECKING:
    import celery

TASK: Final = "datalens.run_job"
_RESENT_AT_ONCE: Final = 100
# A queue of waiting jobs must not fill the broker with copies of their messages.
_RESEND_SECONDS: Final = 600
_BROKER_SECONDS: Final = 5
_log = structlog.get_logger("datalens.dispatch")


class QueueSettings(BaseSettings):
    """Where jobs are sent; the workers read the same variable."""

    model_config = SettingsConfigDict(env_prefix="DATALENS_", frozen=True)

    queue: str = Field(default="cpu", description="Celery queue that jobs are sent to; cpu and gpu by convention.")


class Dispatcher(Protocol):
    """How a queued job reaches a worker."""

    def start(self) -> None:
        """Begin whatever runs beside the requests."""

    def stop(self) -> None:
        """End it."""

    def submitted(self, job_id: str) -> None:
        """A job was committed. Never raises: the job is there whether or not a message is."""

    def check(self) -> None:
        """Whether a message would get through.

        Raises:
            WorkerUnavailable: It would not.
        """


class LocalDispatcher:
    """For the supervisor, which polls the database: there is nothing to send."""

    def start(self) -> None:
        """Nothing runs beside the requests."""

    def stop(self) -> None:
        """Nothing to end."""

    def submitted(self, job_id: str) -> None:
        """The supervisor will see it."""

    def check(self) -> None:
        """There is nothing that could be away."""


class CeleryDispatcher:
    """For Celery workers: one message per job, and a sweep that repeats what may have been lost.

    Args:
        database: Of the jobs.
        broker_url: Redis.
        queue: That workers serve.
        interval_seconds: Between two sweeps.
    """

    def __init__(self, database: Database, broker_url: str, queue: str, interval_seconds: float) -> None:
        self._database = database
        self._queue = queue
        self._celery = _celery(broker_url)
        self._interval = interval_seconds
        self._sent: dict[str, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sweep_until_stopped, name="dispatch-sweep", daemon=True)

    def start(self) -> None:
        """Start sweeping."""
        self._thread.start()

    def stop(self) -> None:
        """Stop sweeping and close the connections to the broker."""
        self._stopped.set()
        self._thread.join(timeout=self._interval + 5)
        self._celery.close()

    def submitted(self, job_id: str) -> None:
        """Send the id; if the broker is away, the sweep will."""
        try:
            self._celery.send_task(TASK, [job_id], queue=self._queue, retry=False)
            self._sent[job_id] = time.monotonic()
        except Exception as error:  # noqa: BLE001 - kombu hands out errors of whatever transport it uses
            _log.warning("not sent", job_id=job_id, error=type(error).__name__)

    def check(self) -> None:
        """Whether the broker answers.

        Raises:
            WorkerUnavailable: It does not.
        """
        try:
            with self._celery.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=_BROKER_SECONDS)
        except Exception as error:
            raise WorkerUnavailable("The broker does not answer; look at DATALENS_BROKER_URL and at Redis.") from error

    def sweep(self) -> None:
        """Put jobs of lost workers back, and send again what has been queued for long; a worker claims it once."""
        for job in leases.expire_leases(self._database):
            self._sent.pop(job.id, None)
        queued = leases.next_queued(self._database, _RESENT_AT_ONCE)
        now = time.monotonic()
        due = [job_id for job_id in queued if now - self._sent.get(job_id, -math.inf) >= _RESEND_SECONDS]
        self._sent = {job_id: self._sent[job_id] for job_id in queued if job_id in self._sent}
        for job_id in due:
            self.submitted(job_id)

    def _sweep_until_stopped(self) -> None:
        while not self._stopped.wait(self._interval):
            try:
                self.sweep()
            except DatalensError as error:
                _log.warning("sweep failed", code=error.slug)


def dispatcher_for(settings: Settings, database: Database) -> Dispatcher:
    """The dispatcher of the executor that the settings name."""
    if settings.executor == "celery" and settings.broker_url:
        return CeleryDispatcher(database, settings.broker_url, QueueSettings().queue, settings.lease_seconds)
    return LocalDispatcher()


def _celery(broker_url: str) -> celery.Celery:
    """A sender. Celery is imported here alone, so that the embedded default does without it."""
    import celery

    sender = celery.Celery("datalens", broker=broker_url, set_as_current=False)
    sender.conf.update(
        task_ignore_result=True,
        # A request must not hang on a broker that does not answer: the sweep is there for that.
        broker_transport_options={
            "socket_timeout": _BROKER_SECONDS,
            "socket_connect_timeout": _BROKER_SECONDS,
            "max_retries": 1,
            "interval_start": 0.1,
        },
    )
    return sender
