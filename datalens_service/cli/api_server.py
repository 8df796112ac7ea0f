"""The server of the API in `datalens serve`: says when it answers, and ends within a bounded time.

uvicorn waits for the head of a request without end, so that a few hundred connections with half a head each use up the
open files of a server. How long a body may take is up to the application (`api/http/middleware.py`).
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import h11
import structlog
import typer
import uvicorn
from uvicorn.importer import import_from_string
from uvicorn.protocols.http.h11_impl import H11Protocol

from datalens_service.cli.failures import ExitCode

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable
    from types import FrameType

    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

    from datalens_service.base.settings import Settings

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


APPLICATION: Final = "datalens_service.api.main:create_app"
"""Factory of the web application, as one would name it to uvicorn; the command line imports nothing of the API."""

_CLOSING_SECONDS: Final = 5.0
"""Seconds in which the application closes its resources after the last request."""

log = structlog.get_logger()


class ApiServer(uvicorn.Server):
    """The API on a socket; announces its address once it answers.

    Args:
        announce: Called when it answers.

    Attributes:
        failed: True if it ends because something that it needs has failed.
        on_signal: Called when a signal arrives that ends the server, from its handler.
        on_overdue: Called before the process is ended because the server took too long.
    """

    def __init__(self, settings: Settings, announce: Callable[[], None]) -> None:
        self._application = import_from_string(APPLICATION)(settings)
        self._start = _Start(self._application)
        self._announce = announce
        self._end_seconds = settings.drain_seconds + _CLOSING_SECONDS
        self.failed = False
        self.on_signal: Callable[[], None] = lambda: None
        self.on_overdue: Callable[[], None] = lambda: None
        # The application logs requests and reads headers of proxies itself, and gives what uvicorn says the same form.
        config = uvicorn.Config(
            self._start,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=BoundedProtocol,
            timeout_graceful_shutdown=settings.drain_seconds,
        )
        super().__init__(config)

    def fail(self) -> None:
        """Begin to end because something that the service needs has failed."""
        self.failed = self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce it.

        Raises:
            Exception: The error that kept the application from starting.
        """
        try:
            await super().startup(sockets)
        except SystemExit:
            raise self._start.failure or typer.Exit(ExitCode.UNREACHABLE) from None
        if self.started:
            self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, and pass the signal on at once, whatever requests are still open."""
        super().handle_exit(sig, frame)
        self.on_signal()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Event streams would keep their connections open for hours: end them first."""
        threading.Thread(target=self._end_in_time, name="end-in-time", daemon=True).start()
        self._application.state.stopping.set()
        await super().shutdown(sockets)

    def _end_in_time(self) -> None:
        """End the process if it is still there: a thread that answers a request cannot be cancelled."""
        time.sleep(self._end_seconds)
        log.warning("requests were still open, the service ends without them")
        self.on_overdue()
        os._exit(ExitCode.UNREACHABLE if self.failed else 0)


class _Start:
    """The application, with what kept it from starting: a person is told so, and a log gets no traceback of it."""

    def __init__(self, application: ASGI3Application) -> None:
        self.failure: Exception | None = None
        self._application = application

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Pass every message on to the application."""
        if scope["type"] != "lifespan":
            await self._application(scope, receive, send)
            return

        async def say(message: Any) -> None:
            told: Any = {**message, "message": ""} if message["type"].endswith(".failed") else message
            await send(told)

        try:
            await self._application(scope, receive, say)
        except Exception as error:
            self.failure = error
            raise
