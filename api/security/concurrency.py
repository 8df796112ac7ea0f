"""How many requests of a key one API process serves at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from datalens_service.errors import RateLimited


class ConcurrencyLimit:
    """Counts requests in flight. It protects the threads of this process, so it is not shared with others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight: Counter[str] = Counter()

    @contextmanager
    def acquire(self, key_id: str, limit: int) -> Generator[None]:
        """Count a request as in flight until the block is left.

        Args:
            key_id: Whose request it is.
            limit: Requests of this key at once.

        Raises:
            RateLimited: As many are in flight.
        """
        with self._lock:
            if self._in_flight[key_id] >= limit:
                detail = f"{limit} requests of this key are being served; wait for one of them."
                raise RateLimited(detail, extra={"retry_after": 1})
            self._in_flight[key_id] += 1
        try:
            yield
        finally:
            self._release(key_id)

    def _release(self, key_id: str) -> None:
        with self._lock:
            self._in_flight[key_id] -= 1
            if not self._in_flight[key_id]:
                # Revoked keys leave nothing behind.
                del self._in_flight[key_id]
