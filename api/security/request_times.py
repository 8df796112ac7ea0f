"""Times of the last requests of each key, in the memory of one process."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from itertools import islice
from typing import Final

from limits.storage import MemoryStorage

_SWEEP_SECONDS: Final = 60.0


class RequestTimes(MemoryStorage):
    """Moving windows as `MemoryStorage` has them, in constant time per request.

    The library starts a thread every ten milliseconds of traffic, which copies all times, and puts each new time in
    front of all others.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._times: dict[str, deque[float]] = {}
        self._swept_at = time.time()

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take `amount` of the `limit` requests that the last `expiry` seconds allow; False if that is too many."""
        now = time.time()
        with self._lock:
            self._sweep(now)
            times = self._times.setdefault(key, deque())
            while times and times[0] < now - expiry:
                times.popleft()
            if len(times) + amount > limit:
                return False
            times.extend([now] * amount)
            return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the oldest request of the window came, and how many are in it."""
        now = time.time()
        with self._lock:
            times = self._times.get(key, deque())
            gone = bisect_right(times, now - expiry) if times and times[0] < now - expiry else 0
            return next(islice(times, gone, None), now), len(times) - gone

    def _sweep(self, now: float) -> None:
        """Forget keys that are quiet for longer than any window."""
        if now - self._swept_at < _SWEEP_SECONDS:
            return
        self._swept_at = now
        self._times = {key: times for key, times in self._times.items() if times and times[-1] >= now - _SWEEP_SECONDS}
