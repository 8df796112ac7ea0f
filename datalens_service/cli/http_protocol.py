"""HTTP/1.1 as uvicorn speaks it, but not to whoever takes for ever over the head of a request.

uvicorn waits for a head without end, so that a few hundred connections with half a head each use up the open files of a
server. How long a body may take is up to the application (`api/http/middleware.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

HEAD_SECONDS: Final = 10.0
"""From the start of a connection, or the first byte of a further request, to the end of the head."""


class BoundedProtocol(H11Protocol):
    """Closes a connection when the head of a request, or the rest of a request that was answered, does not come."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def _watch(self) -> None:
        answered = self.cycle is not None and self.cycle.response_complete
        state = self.conn.their_state
        if state is not h11.IDLE and not (answered and state is h11.SEND_BODY):
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
