"""Telling workers that there is a job. The database is the truth: a lost message costs time, a double one nothing.

Workers look into the database themselves (`workers/process/job_loop.py`), so nothing is repeated here.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import structlog

from datalens_service.base.errors import WorkerUnavailable
from datalens_service.base.settings import VERIFIES, Settings
from datalens_service.spec import Device

if TYPE_CHECKING:
    import celery

TASK: Final = "datalens.run_job"
_BROKER_SECONDS: Final = 1
_PAUSE_SECONDS: Final = 10.0
"""Nothing is sent for so long after a broker that did not take a message: workers look themselves."""

_PROBE: Final = "datalens-probe"
_NO_ANSWER: Final = "The broker does not answer; look at ⟦DATALENS_BROKER_URL⟧ and at Redis."
_CAUSES: Final = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "The certificate of the broker cannot be verified. Name the file of its authority in ⟦DATALENS_BROKER_URL⟧; "
        "docs/operations.md says how.",
    ),
    ("OutOfMemoryError", "Redis is full and takes no messages; raise its maxmemory, or free some of it."),
    ("MISCONF", "Redis takes no messages, since it cannot write to its disk; free or mend that disk."),
    ("ReadOnlyError", "Redis is a replica, which takes no messages; name its primary in the URL."),
    ("AuthenticationError", "Redis refuses the password of ⟦DATALENS_BROKER_URL⟧; correct it."),
    ("NoPermissionError", "The user of ⟦DATALENS_BROKER_URL⟧ may not write to Redis; grant it all keys."),
    ("BusyLoadingError", "Redis is starting and reads its data; wait until it has done so."),
)
"""Messages of the driver about Redis, each with its meaning for a reader."""

_log = structlog.get_logger("datalens.dispatch")


class Dispatcher:
    """Leaves a queued job to the supervisor, which polls the database."""

    def stop(self) -> None:
        """Close what it holds open."""

    def queue(self, device: Device) -> str | None:
        """Return the queue in which a job for this device waits; None if any worker may take it."""
        return None

    def submitted(self, job_id: str, queue: str | None = None) -> None:
        """A job was committed. Never raises: the job is there whether or not a message is."""

    def check(self) -> None:
        """Check that a message would get through.

        Raises:
            WorkerUnavailable: It would not.
        """


class CeleryDispatcher(Dispatcher):
    """Sends Celery workers one message per job.

    Args:
        queue: For jobs that name no device.
    """

    def __init__(self, broker_url: str, queue: str) -> None:
        self._queue = queue
        self._is_verified = f"{VERIFIES}none" not in broker_url and f"{VERIFIES}CERT_NONE" not in broker_url
        self._celery = _celery(broker_url)
        self._silent_until = float("-inf")

    def stop(self) -> None:
        """Close the connections to the broker."""
        self._celery.close()

    def queue(self, device: Device) -> str | None:
        """The queue named like the device, or the default one."""
        return self._queue if device is Device.AUTO else device.value

    def submitted(self, job_id: str, queue: str | None = None) -> None:
        """Send the id; if the broker is away, a worker will find the job."""
        if time.monotonic() < self._silent_until:
            return
        try:
            self._celery.send_task(TASK, [job_id], queue=queue or self._queue, retry=False)
        except Exception as error:  # noqa: BLE001 - kombu hands out errors of whatever transport it uses
            self._silent_until = time.monotonic() + _PAUSE_SECONDS
            _log.warning("not sent", job_id=job_id, error=type(error).__name__)

    def check(self) -> None:
        """Check that the broker takes what is sent, and shows a certificate if it has TLS."""
        try:
            with self._celery.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=_BROKER_SECONDS)
                if connection.transport.driver_type == "redis":
                    # One that is full, a replica, or unable to write answers as well.
                    channel: Any = connection.default_channel
                    channel.client.set(_PROBE, "", ex=60)
        except Exception as error:
            words = _collect_words(error)
            said = next((said for cause, said in _CAUSES if re.search(cause, words)), _NO_ANSWER)
            raise WorkerUnavailable(said) from error
        if not self._is_verified:
            raise WorkerUnavailable(
                "⟦DATALENS_BROKER_URL⟧ takes any certificate: whoever answers in the place of Redis gets its password."
            )


def _collect_words(error: BaseException | None) -> str:
    """Return the classes and messages of an error and of those that led to it."""
    return (
        ""
        if error is None
        else f"{type(error).__name__} {error} {_collect_words(error.__cause__ or error.__context__)}"
    )


def choose_dispatcher(settings: Settings) -> Dispatcher:
    """The dispatcher of the executor that the settings name."""
    if settings.executor == "celery" and settings.broker_url:
        return CeleryDispatcher(settings.broker_url, settings.queue)
    return Dispatcher()


def _celery(broker_url: str) -> celery.Celery:
    """A sender. Celery is imported here alone, so that the embedded default does without it."""
    import celery

    sender = celery.Celery("datalens", broker=broker_url, set_as_current=False)
    sender.conf.update(
        task_ignore_result=True,
        # A request must not hang on a broker that does not answer: workers look after what was not sent.
        broker_transport_options={
            "socket_timeout": _BROKER_SECONDS,
            "socket_connect_timeout": _BROKER_SECONDS,
            "max_retries": 1,
            "interval_start": 0.1,
        },
    )
    return sender
