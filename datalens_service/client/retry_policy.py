"""Decides which errors are retried, after which delay, and for how long."""

import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from datalens_service.client.errors import ClientError, ServiceUnreachable

_RETRYABLE: Final = ("upload-offset-mismatch", "upload-locked", "checksum-mismatch", "store-unavailable")
"""Problem types that a retry may resolve."""

_MAX_DELAY: Final = 5.0

Reading = TypeVar("Reading")


class RetryPolicy:
    """Exponential backoff with a deadline that each success extends.

    Args:
        initial_delay: Seconds before the first retry; the delay doubles up to five seconds.
    """

    def __init__(self, timeout: float = 120.0, initial_delay: float = 0.25) -> None:
        self._timeout, self._initial_delay = timeout, initial_delay
        self.reset()

    def reset(self) -> None:
        """Record a success: delay and deadline start again."""
        self._delay = self._initial_delay
        self._last_success = time.monotonic()

    def choose_delay(self, error: ClientError) -> float:
        """Seconds to wait before the next attempt.

        Raises:
            ClientError: `error` itself, if it is not retryable or the deadline has passed.
        """
        retryable = isinstance(error, ServiceUnreachable) or error.slug in _RETRYABLE
        if not retryable or time.monotonic() - self._last_success > self._timeout:
            raise error
        delay, self._delay = self._delay, min(2 * self._delay, _MAX_DELAY)
        return delay

    def poll(self, read: Callable[[], Reading], interval: float) -> Iterator[Reading]:
        """Read a value again and again, so many seconds apart; a service that does not respond is waited for."""
        while True:
            try:
                reading = read()
            except ServiceUnreachable as error:
                time.sleep(self.choose_delay(error))
                continue
            self.reset()
            yield reading
            time.sleep(interval)
