"""Reads what a reverse proxy says of a request, and the path prefix under which it shows the service.

Only proxies that the operator trusts are believed: anybody can send their headers.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from datalens_service.api.addresses import address, rooted_at
from datalens_service.base.settings import ROOT_PATH, Settings

HEADER: Final = "X-Forwarded-Prefix"

_COOKIE_PATH: Final = re.compile(r"(?<=; path=)/[^;]*", re.IGNORECASE)
_log = structlog.get_logger("datalens.api")


class ReverseProxy:
    """Serves the application below its root path, whether or not a proxy has taken that from the path already.

    Args:
        own: First parts of the paths of the service; no root path may begin with one of them.
    """

    def __init__(self, app: ASGIApp, settings: Settings, own: Iterable[str]) -> None:
        # `Any`: uvicorn and Starlette have types of their own for the same things.
        inner: Any = self._serve_below
        self._with_scheme: Any = ProxyHeadersMiddleware(inner, settings.trusted_proxies.split())
        self._app = app
        self._settings = settings
        self._own = frozenset(own)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["root_path"] = self._root_path(scope)
        await self._with_scheme(scope, receive, send)

    async def _serve_below(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("root_path"):
            await self._app(scope, receive, send)
            return
        root_path: str = scope["root_path"]
        if not f"{scope['path']}/".startswith(f"{root_path}/"):
            scope["path"] = root_path + scope["path"]

        async def send_rooted(message: Message) -> None:
            if message["type"] == "http.response.start":
                _root_headers(MutableHeaders(scope=message))
            await send(message)

        with rooted_at(root_path):
            await self._app(scope, receive, send_rooted)

    def _root_path(self, scope: Scope) -> str:
        """Return the root path of the settings, or of the proxy where they have no address of the service."""
        client = scope["client"]
        if self._settings.root_path or self._settings.public_url or not client:
            return self._settings.root_path
        named = Headers(scope=scope).get(HEADER, "")
        if not named or client[0] not in self._with_scheme.trusted_hosts:
            return ""
        if re.fullmatch(ROOT_PATH, named) and named.split("/")[1] not in self._own:
            return named
        _log.warning("unusable root path", header=HEADER)
        return ""


def _root_headers(headers: MutableHeaders) -> None:
    """Make addresses of paths within the service; what leads elsewhere stays."""
    location = headers.get("location", "")
    if location.startswith("/"):
        headers["location"] = address(location)
    cookies = headers.getlist("set-cookie")
    del headers["set-cookie"]
    for cookie in cookies:
        headers.append("set-cookie", _COOKIE_PATH.sub(lambda path: address(path[0]).removesuffix("/"), cookie))
