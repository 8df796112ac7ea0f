"""Through which interface a request is read: its errors use the words that are in front of the reader."""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.addresses import inner_path
from datalens_service.voices import HEADER, Voice, spoken_to

_FOR_PROGRAMS: Final = ("/v1/", "/problems/", "/openapi.json", "/livez", "/readyz", "/metrics")


class ReaderVoice:
    """Sets the voice of all texts of an answer, also of those that threads and handlers of errors make."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        with spoken_to(_voice_of(inner_path(scope), Headers(scope=scope).get(HEADER))):
            await self._app(scope, receive, send)


def _voice_of(path: str, asked: str | None) -> Voice:
    """What the client asks for, and is ignored if it is no voice; else that of pages or of programs."""
    if not path.startswith(_FOR_PROGRAMS):
        return Voice.PAGE
    return Voice(asked) if asked in set(Voice) else Voice.REST
