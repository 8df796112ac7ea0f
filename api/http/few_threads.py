"""Handlers that run in few threads at once; further calls wait in the event loop, where waiting costs nothing.

A short read is work of the interpreter, which does one thing at a time. SQLite lets go of it at every row, so forty
threads that read spend more time on taking turns than on reading. Handlers that may wait, for a lock, a file of an
object store or a process, keep the framework's forty threads, and hold up no short read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Final, ParamSpec, TypeVar

import anyio.to_thread
from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

P = ParamSpec("P")
T = TypeVar("T")


class FewThreads:
    """Threads for one kind of handler, of each event loop.

    Args:
        name: Of the kind.
        count: Most at once.
    """

    def __init__(self, name: str, count: int) -> None:
        self._limiter: RunVar[CapacityLimiter] = RunVar(name)
        self._count = count

    async def run(self, call: Callable[[], T]) -> T:
        """Call something in one of the threads, in the order of asking."""
        return await anyio.to_thread.run_sync(call, limiter=self._get_limiter())

    def handler(self, handle: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
        """The handler, run in one of the threads."""

        @functools.wraps(handle)
        async def run(*arguments: P.args, **named: P.kwargs) -> T:
            return await self.run(functools.partial(handle, *arguments, **named))

        return run

    def _get_limiter(self) -> CapacityLimiter:
        try:
            return self._limiter.get()
        except LookupError:
            limiter = CapacityLimiter(self._count)
            self._limiter.set(limiter)
            return limiter


SHORT_READS: Final = FewThreads("short_reads", 8)
"""For what reads some rows and waits for nobody; also lets callers in."""
PLANS: Final = FewThreads("plans", 4)
"""For prices: some take seconds of work, and must not hold up reads."""
