"""How many requests a key may send: so many in a moving window, and so many at once.

Windows are shared by all API processes where there is a Redis (`request_counts`). Requests in flight are counted in
each process: that limit protects the threads and the memory of one process, and a shared count of what a crashed
process was serving would need leases (decision 27). What must hold exactly, budgets, is in the database.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from limits import RateLimitItem, RateLimitItemPerSecond

from api.security.request_counts import RequestCounter, request_counter
from datalens_service.errors import RateLimited
from datalens_service.settings import Settings
from datalens_service.store.access.keys import ApiKey

_BURST_SECONDS: Final = 10
_NAMESPACE: Final = "datalens"


@dataclass(frozen=True)
class Allowance:
    """What a request leaves of its key's limit; for the headers `RateLimit` and `RateLimit-Policy`."""

    per_minute: int
    remaining: int
    seconds_to_reset: int

    def headers(self) -> dict[str, str]:
        """As the draft of the IETF writes them."""
        return {
            "RateLimit-Policy": f'"default";q={self.per_minute};w=60',
            "RateLimit": f'"default";r={self.remaining};t={self.seconds_to_reset}',
        }


class RequestLimits:
    """The limits of all keys.

    Args:
        settings: Limits of keys that have none of their own, and where requests are counted.
        counter: Counts requests in windows; by default as the settings say.
    """

    def __init__(self, settings: Settings, counter: RequestCounter | None = None) -> None:
        self._settings = settings
        self._counter = counter or request_counter(settings.broker_url)
        self._lock = threading.Lock()
        self._in_flight: Counter[str] = Counter()

    @contextmanager
    def slot(self, key: ApiKey) -> Generator[Allowance]:
        """Count a request, and count it as served until the block is left.

        Raises:
            RateLimited: The key has used up its limit, or too many of its requests are being served.
        """
        with self._serving(key):
            yield self._allowance(key)

    @contextmanager
    def _serving(self, key: ApiKey) -> Generator[None]:
        limit = key.concurrent_requests or self._settings.concurrent_requests
        with self._lock:
            if self._in_flight[key.id] >= limit:
                raise _refused(f"{limit} requests of this key are being served; wait for one of them.", 1)
            self._in_flight[key.id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight[key.id] -= 1
                if not self._in_flight[key.id]:
                    del self._in_flight[key.id]

    def _allowance(self, key: ApiKey) -> Allowance:
        per_minute = key.requests_per_minute or self._settings.requests_per_minute
        count = self._counter.count(window_of(per_minute), key.id)
        if not count.accepted:
            raise _refused(f"This key may send {per_minute} requests a minute.", count.seconds)
        return Allowance(per_minute, count.remaining, count.seconds)


def window_of(per_minute: int) -> RateLimitItem:
    """The window of a rate: whole seconds and whole requests in exactly its ratio, of ten seconds where that exists.

    For 7 a minute there is none shorter than a minute.
    """
    rate = Fraction(per_minute, 60)
    repeats = max(1, _BURST_SECONDS // rate.denominator)
    return RateLimitItemPerSecond(rate.numerator * repeats, rate.denominator * repeats, _NAMESPACE)


def _refused(detail: str, seconds: int) -> RateLimited:
    return RateLimited(detail, extra={"retry_after": seconds})
