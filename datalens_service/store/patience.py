"""Marks the callers that give up soon on a database that does not answer: requests and the loops of workers.

A loop waits so long each time. A request waits so long in all: for a thread, a connection, a lock and SQLite's writer
together, however often. Statements count as waiting, since nobody but the server knows which part of one waited for a
lock; a slow statement itself is waited for. What a request receives or computes meanwhile does not count.

Jobs wait: whether a charge that was sent happens is known only once the server goes on.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

SECONDS = 5.0
"""Longest wait of who gives up soon: each time in a loop, in all in a request."""
LEAST_SECONDS: Final = 1.0
"""Wait that is left for the note of a request in the journal, which says what was done already."""


class _Patience:
    """The seconds that are left to a caller for all waits together; None has them for each."""

    def __init__(self, seconds: float | None) -> None:
        self._left = seconds

    @property
    def left(self) -> float:
        return SECONDS if self._left is None else max(0.0, self._left)

    def spend(self, seconds: float) -> None:
        if self._left is not None:
            self._left -= seconds

    @contextmanager
    def keep(self) -> Generator[None]:
        left = self._left
        try:
            yield
        finally:
            self._left = left


_patience: ContextVar[_Patience | None] = ContextVar("patience", default=None)


@contextmanager
def impatient() -> Generator[None]:
    """Give up each wait within seconds, in this block and in threads that copy its context."""
    with _having(_Patience(None)):
        yield


@contextmanager
def impatient_in_all(seconds: float | None = None) -> Generator[None]:
    """Give up once all waits of this block, and of threads that copy its context, have taken so long together.

    Args:
        seconds: None takes `SECONDS`.
    """
    with _having(_Patience(SECONDS if seconds is None else seconds)):
        yield


def is_impatient() -> bool:
    """Return True if the caller gives up soon."""
    return _patience.get() is not None


def seconds_left(otherwise: float) -> float:
    """Return how long the caller may wait now; `otherwise` if it does not give up soon."""
    patience = _patience.get()
    return otherwise if patience is None else patience.left


@contextmanager
def waiting() -> Generator[None]:
    """Count the time of this block as waiting."""
    patience = _patience.get()
    if patience is None:
        yield
        return
    began = time.monotonic()
    try:
        yield
    finally:
        patience.spend(time.monotonic() - began)


@contextmanager
def working() -> Generator[None]:
    """Count no time of this block as waiting: its statements are many, and long by themselves."""
    patience = _patience.get()
    with nullcontext() if patience is None else patience.keep():
        yield


@contextmanager
def _having(patience: _Patience) -> Generator[None]:
    token = _patience.set(patience)
    try:
        yield
    finally:
        _patience.reset(token)
