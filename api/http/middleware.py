"""Around every request: an id, one line in the log, limits on body and patience, and a problem whatever happens."""

from __future__ import annotations

import asyncio
import re
import time
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from datalens_service.api.addresses import inner_path
from datalens_service.api.problems.handlers import ProblemResponse, from_status, internal_error
from datalens_service.base.logs import outline
from datalens_service.base.wording import HEADER, Voice, spoken_to
from datalens_service.store.patience import impatient_in_all

UPLOAD_PATHS: Final = frozenset({"/v1/datasets", "/v1/generators"})
_SENT_IMAGES: Final = re.compile(r"/v1/classifiers/[^/]+/predictions|/v1/jobs/[^/]+/individual-epsilon")
PIECES_PATH: Final = "/v1/uploads/"
_JSON_BYTES: Final = 2**20
_JSON_SECONDS: Final = 30.0
_PIECE_SECONDS: Final = 60.0
_SLOWEST_BYTES: Final = 1024
"""A second, on average, once `_PIECE_SECONDS` have passed: one byte a minute would hold a connection for years."""

SHARED: Final = "/shared/"
"""Beginning of the addresses of partners, which are secrets."""

_OF_A_SECRET_ADDRESS: Final = {
    "Cache-Control": "private, no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow, noarchive",
}
_TLS_ALONE: Final = "max-age=31536000"
# In the log only: nobody was left to answer.
_HUNG_UP: Final = 499
_log = structlog.get_logger("datalens.api")


class Middleware:
    """Stands between a server and its application, for requests alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on whatever is no request, such as the start of the application."""
        await (self.serve if scope["type"] == "http" else self._app)(scope, receive, send)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; subclasses override this."""
        await self._app(scope, receive, send)


class RequestLog(Middleware):
    """Gives each request an id, logs its end, and answers exceptions that nobody meant.

    The log names the route, not the path: what a client writes into a path or a file name stays out of it.
    """

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = str(uuid4())
        scope.setdefault("state", {})["request_id"] = request_id
        with structlog.contextvars.bound_contextvars(request_id=request_id), impatient_in_all():
            await self._serve(scope, receive, _Reply(scope, receive, send, request_id))

    async def _serve(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        started = time.perf_counter()
        try:
            await self._app(scope, receive, reply.send)
        except ClientDisconnect:
            reply.status = _HUNG_UP
            if scope["state"].get("too_slow"):
                await reply.replace(from_status(HTTPStatus.REQUEST_TIMEOUT, reply.request_id))
        except Exception as error:  # noqa: BLE001 - the last place that can answer
            # Messages of exceptions may quote what was uploaded, so only type and places are logged.
            _log.error("unexpected", **outline(error))
            if reply.status is None:
                await reply.replace(internal_error(reply.request_id))
        finally:
            route = getattr(scope.get("route"), "path", None)
            seconds = round(time.perf_counter() - started, 4)
            if reply.status == HTTPStatus.UNAUTHORIZED and "services" in scope["app"].state:
                scope["app"].state.services.refusals.inc()
            _log.info("request", method=scope["method"], route=route, status=reply.status, seconds=seconds)


class _Reply:
    """The way back: adds the request's id, remembers the status, turns plain-text errors into problems."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.request_id = request_id
        self.status: int | None = None
        self._replaced = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            self._protect(headers)
            if message["status"] >= 400 and headers.get("content-type", "").startswith("text/plain"):
                await self.replace(from_status(message["status"], self.request_id, headers.get("content-range")))
        if not self._replaced:
            await self._send(message)

    async def replace(self, response: ProblemResponse) -> None:
        """Send `response`, and nothing after it."""
        self.status = response.status_code
        self._replaced = True
        self._protect(response.headers)
        await response(self._scope, self._receive, self._send)

    def _protect(self, headers: MutableHeaders) -> None:
        headers["X-Request-ID"] = self.request_id
        headers["X-Content-Type-Options"] = "nosniff"
        if inner_path(self._scope).startswith(SHARED):
            headers.update(_OF_A_SECRET_ADDRESS)
        if self._scope["scheme"] == "https":
            headers["Strict-Transport-Security"] = _TLS_ALONE


class BodyLimit(Middleware):
    """Stops reading a body that is too long, as soon as that is known.

    Args:
        upload_bytes: Limit for uploads; all other bodies are JSON and small.
    """

    def __init__(self, app: ASGIApp, upload_bytes: int) -> None:
        super().__init__(app)
        self._upload_bytes = upload_bytes

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        is_upload = _is_upload(inner_path(scope), headers)
        limit = self._upload_bytes if is_upload else _JSON_BYTES
        receive = _limited(receive, headers.get("content-length", ""), limit)
        await self._app(scope, _timed(receive, scope, in_pieces=is_upload), send)


def _is_upload(path: str, headers: Headers) -> bool:
    """Return True if the body is a file, whole or in part, and not JSON."""
    is_json = headers.get("content-type", "").startswith("application/json")
    is_file = path in UPLOAD_PATHS or _SENT_IMAGES.fullmatch(path) is not None
    return path.startswith(PIECES_PATH) or (is_file and not is_json)


def _limited(receive: Receive, declared: str, limit: int) -> Receive:
    """`receive` that raises 413 once more than `limit` bytes were declared or came."""
    received = 0

    async def limited() -> Message:
        nonlocal received
        if declared.isdecimal() and int(declared) > limit:
            raise HTTPException(413)
        message = await receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise HTTPException(413)
        return message

    return limited


def _timed(receive: Receive, scope: Scope, *, in_pieces: bool) -> Receive:
    """`receive` that gives a slow client up: a file may take its time, but not between its pieces, and at some rate.

    Of a file it says that the client has hung up, so that what had arrived of a resumable upload is kept.
    """
    deadline, complete = time.monotonic() + (_PIECE_SECONDS if in_pieces else _JSON_SECONDS), False

    async def timed() -> Message:
        nonlocal complete, deadline
        if complete:
            # What is waited for is that the client hangs up.
            return await receive()
        try:
            left = deadline - time.monotonic()
            async with asyncio.timeout(min(left, _PIECE_SECONDS) if in_pieces else left):
                message = await receive()
            complete = not message.get("more_body", False)
            if in_pieces:
                deadline += len(message.get("body", b"")) / _SLOWEST_BYTES
            return message
        except TimeoutError:
            scope["state"]["too_slow"] = True
            if in_pieces:
                return {"type": "http.disconnect"}
            raise HTTPException(HTTPStatus.REQUEST_TIMEOUT) from None

    return timed


_FOR_PROGRAMS: Final = ("/v1/", "/problems/", "/openapi.json", "/livez", "/readyz", "/metrics")


class ReaderVoice(Middleware):
    """Sets the voice of all texts of an answer, also of those that threads and handlers of errors make."""

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        with spoken_to(_choose_voice(inner_path(scope), Headers(scope=scope).get(HEADER))):
            await self._app(scope, receive, send)


def _choose_voice(path: str, asked: str | None) -> Voice:
    """Return the voice that the client asks for; without a known one, that of pages or of programs."""
    if not path.startswith(_FOR_PROGRAMS):
        return Voice.PAGE
    return Voice(asked) if asked in set(Voice) else Voice.REST
