"""Marks the callers that give up soon on a database that does not answer: requests and the loops of workers.

Jobs wait: whether a charge that was sent happens is known only once the server goes on.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

SECONDS = 5
"""Longest wait of who gives up soon: for a lock, for a connection, or for SQLite's writer."""

_impatient: ContextVar[bool] = ContextVar("impatient", default=False)


@contextmanager
def impatient() -> Generator[None]:
    """Give up within seconds, in this block and in threads that copy its context."""
    token = _impatient.set(True)
    try:
        yield
    finally:
        _impatient.reset(token)


def is_impatient() -> bool:
    """Return True if the caller gives up soon."""
    return _impatient.get()
