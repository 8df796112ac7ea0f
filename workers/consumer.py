"""The part of a Celery worker that listens to the broker. Jobs do without it, so nothing of the broker may end them."""

import time
from typing import Any, Final

import structlog
from celery.worker import consumer
from celery.worker.state import maybe_shutdown

from datalens_service.base import logs

log = structlog.get_logger()

_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_LOOK_SECONDS: Final = 0.2
"""Seconds after which a pause checks again whether the worker has to stop."""


class Consumer(consumer.Consumer):
    """Begins again after every error, each time later.

    Celery's own does so if a connection is lost. A broker that is full, a key of another type and a message that is no
    JSON end its process, and with it the job that the process supervises.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connection_errors = (Exception,)
        self._pause = _SHORTEST_PAUSE
        self._failed_at = float("-inf")

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        if time.monotonic() - self._failed_at > 2 * _LONGEST_PAUSE:
            self._pause = _SHORTEST_PAUSE
        log.error("messages cannot be received, jobs are still taken", **logs.outline(exc))
        if self.connection:
            super().on_connection_error_after_connected(exc)
        _wait(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._failed_at = time.monotonic()

    on_connection_error_before_connected = on_connection_error_after_connected


def _wait(seconds: float) -> None:
    """Wait, unless the worker is told to stop.

    Raises:
        SystemExit: It is.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        maybe_shutdown()
        time.sleep(_LOOK_SECONDS)
