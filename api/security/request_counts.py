"""Counts requests in moving windows: for all API processes together in Redis, or for one process in its memory.

The windows and their storage are those of the library `limits`. Here is what it leaves to its user: which storage, how
long a request waits for it, and what happens while it is unavailable.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import structlog
from limits import RateLimitItem
from limits.errors import StorageError
from limits.storage import MemoryStorage, RedisStorage
from limits.strategies import MovingWindowRateLimiter

if TYPE_CHECKING:
    from redis import ConnectionPool

RETRY_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 0.25
_SCHEMES: Final = ("redis", "rediss")
_log = structlog.get_logger("datalens.rate_limits")


class Count(NamedTuple):
    """A request in its window.

    Attributes:
        accepted: Whether there was room for it; a refused request takes none.
        remaining: Requests for which there is room now.
        seconds: Until the oldest request leaves the window, rounded up; at least 1.
    """

    accepted: bool
    remaining: int
    seconds: int


class RequestCounter(Protocol):
    """Where requests are counted."""

    def count(self, window: RateLimitItem, key_id: str) -> Count:
        """Count a request of a key."""


class ProcessCounter:
    """Counts in the memory of this process."""

    def __init__(self) -> None:
        self._limiter = MovingWindowRateLimiter(MemoryStorage())

    def count(self, window: RateLimitItem, key_id: str) -> Count:
        """Count a request of a key."""
        return _count(self._limiter, window, key_id)


class SharedCounter:
    """Counts in Redis; while that is unavailable, in the memory of this process.

    A rate limit keeps callers from disturbing each other; it guards no private value. So a lost Redis does not stop the
    service: each process counts for itself, and asks Redis again every few seconds.

    Args:
        url: Of Redis.
        clock: Seconds; for tests.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shared = MovingWindowRateLimiter(
            RedisStorage(url, connection_pool=_connections(url), wrap_exceptions=True)
        )
        self._fallback = ProcessCounter()
        self._lock = threading.Lock()
        self._retry_at: float | None = None

    def count(self, window: RateLimitItem, key_id: str) -> Count:
        """Count a request of a key."""
        if self._retry_at is not None and self._clock() < self._retry_at:
            return self._fallback.count(window, key_id)
        try:
            count = _count(self._shared, window, key_id)
        except StorageError as error:
            self._lost(error)
            return self._fallback.count(window, key_id)
        self._restored()
        return count

    def _lost(self, error: StorageError) -> None:
        with self._lock:
            first, self._retry_at = self._retry_at is None, self._clock() + RETRY_SECONDS
        if first:
            # The message of an error may quote the URL, and that has a password.
            _log.warning("rate_limits_counted_per_process", error=type(error.storage_error).__name__)

    def _restored(self) -> None:
        with self._lock:
            lost, self._retry_at = self._retry_at is not None, None
        if lost:
            _log.info("rate_limits_shared_again")


def request_counter(broker_url: str | None) -> RequestCounter:
    """Counts in the broker, if that is Redis or Valkey, else in the memory of this process."""
    if broker_url and urlsplit(broker_url).scheme in _SCHEMES:
        return SharedCounter(broker_url)
    return ProcessCounter()


def _count(limiter: MovingWindowRateLimiter, window: RateLimitItem, key_id: str) -> Count:
    accepted = limiter.hit(window, key_id)
    reset_at, remaining = limiter.get_window_stats(window, key_id)
    return Count(accepted, max(0, remaining), max(1, math.ceil(reset_at - time.time())))


def _connections(url: str) -> ConnectionPool:
    """Connections that give up soon: by default redis-py repeats for seconds, and a request would wait for them."""
    from redis import ConnectionPool
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return ConnectionPool.from_url(
        url,
        socket_timeout=_TIMEOUT_SECONDS,
        socket_connect_timeout=_TIMEOUT_SECONDS,
        retry=Retry(NoBackoff(), 0),
    )
