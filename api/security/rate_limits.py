"""How many requests a key may send: a bucket of tokens per key, and a count of what is served at once.

Both are counted in the memory of each API process: with k processes behind one address, a key gets up to k times as
much. What must hold exactly, budgets, is in the database.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from datalens_service.errors import RateLimited
from datalens_service.settings import Settings
from datalens_service.store.access.keys import ApiKey

_BURST_SECONDS = 10.0
_MOST_KEYS = 10_000


@dataclass
class _Bucket:
    """What is left for a key.

    Attributes:
        tokens: Requests it may send now.
        at: When that was, in seconds of the clock.
        serving: Requests that are being served.
    """

    tokens: float
    at: float
    serving: int = field(default=0)


@dataclass(frozen=True)
class Allowance:
    """What a request leaves of its key's limit; for the headers `RateLimit` and `RateLimit-Policy`."""

    per_minute: int
    remaining: int
    seconds_to_full: int

    def headers(self) -> dict[str, str]:
        """As the draft of the IETF writes them."""
        return {
            "RateLimit-Policy": f'"default";q={self.per_minute};w=60',
            "RateLimit": f'"default";r={self.remaining};t={self.seconds_to_full}',
        }


class RequestLimits:
    """The buckets of all keys that this process has seen.

    Args:
        settings: Limits of keys that have none of their own.
        clock: Seconds; for tests.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, _Bucket] = {}

    @contextmanager
    def slot(self, key: ApiKey) -> Generator[Allowance]:
        """Count a request, and count it as served until the block is left.

        Raises:
            RateLimited: The key has used up its limit, or too many of its requests are being served.
        """
        with self._lock:
            bucket, allowance = self._taken(key)
            bucket.serving += 1
        try:
            yield allowance
        finally:
            with self._lock:
                bucket.serving -= 1

    def _taken(self, key: ApiKey) -> tuple[_Bucket, Allowance]:
        per_minute = key.requests_per_minute or self._settings.requests_per_minute
        most = key.concurrent_requests or self._settings.concurrent_requests
        rate = per_minute / 60
        full = max(1.0, rate * _BURST_SECONDS)
        bucket = self._refilled(key.id, rate, full)
        if bucket.serving >= most:
            raise _refused(f"{most} requests of this key are being served; wait for one of them.", 1)
        if bucket.tokens < 1:
            seconds = math.ceil((1 - bucket.tokens) / rate)
            raise _refused(f"This key may send {per_minute} requests a minute.", seconds)
        bucket.tokens -= 1
        return bucket, Allowance(per_minute, int(bucket.tokens), math.ceil((full - bucket.tokens) / rate))

    def _refilled(self, key_id: str, rate: float, full: float) -> _Bucket:
        now = self._clock()
        if len(self._buckets) > _MOST_KEYS:
            self._buckets = {name: bucket for name, bucket in self._buckets.items() if bucket.serving}
        bucket = self._buckets.setdefault(key_id, _Bucket(full, now))
        bucket.tokens = min(full, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        return bucket


def _refused(detail: str, seconds: int) -> RateLimited:
    return RateLimited(detail, extra={"retry_after": seconds})
