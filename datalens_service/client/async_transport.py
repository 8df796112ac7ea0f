"""The same as `transport.py` for asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.client.transport import checked, client_options, reaching


class AsyncTransport:
    """HTTP connections to one service.

    Args:
        url: Address of the service.
        api_key: Sent as bearer token; empty sends none.
        timeout: Seconds to wait for an answer.

    Raises:
        ClientError: `url` is not an HTTP address.
    """

    def __init__(self, url: str, api_key: str, timeout: float) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        self._http = httpx2.AsyncClient(**client_options(self.url, api_key))

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def request(self, method: str, address: str, **options: Any) -> httpx2.Response:
        """The successful answer to one request.

        Raises:
            ClientError: The service refused.
            ServiceUnreachable: Nobody answered.
        """
        with reaching(self.url):
            reply = await self._http.request(method, address, **{"timeout": self._timeout, **options})
        return checked(reply)

    async def lines(self, address: str, headers: dict[str, str]) -> AsyncIterator[str]:
        """Lines of a stream, until it ends or breaks.

        Raises:
            ClientError: The service refused.
            ServiceUnreachable: Nobody answered, or the connection broke.
        """
        with reaching(self.url):
            async with self._http.stream("GET", address, headers=headers, timeout=self._timeout) as reply:
                if not reply.is_success:
                    await reply.aread()
                    checked(reply)
                async for line in reply.aiter_lines():
                    yield line

    async def save(self, address: str, params: dict[str, str], path: Path, *, timeout: float | None = None) -> Path:
        """Stream an answer into a file, which appears complete or not at all.

        Raises:
            ClientError: The service refused.
            ServiceUnreachable: Nobody answered, or the connection broke.
        """
        partial = path.with_name(f".{path.name}.partial")
        try:
            with reaching(self.url):
                async with self._http.stream("GET", address, params=params, timeout=timeout or self._timeout) as reply:
                    if not reply.is_success:
                        await reply.aread()
                        checked(reply)
                    with partial.open("wb") as file:
                        async for block in reply.aiter_bytes():
                            file.write(block)
            return partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
