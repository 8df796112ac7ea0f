"""HTTP connections to one service."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2

from datalens_service.base.wording import HEADER, Voice
from datalens_service.client import requests
from datalens_service.client.addresses import is_loopback
from datalens_service.client.responses import (
    ParsedModel,
    convert_connection_errors,
    parse_model,
    parse_page,
    raise_for_problem,
    unexpected_response,
)


class Transport:
    """HTTP connections to one service.

    Every method raises `ClientError` where the service refuses, and its subclass `ServiceUnreachable` where there is
    no response or the connection breaks.
    """

    def __init__(self, url: str, api_key: str, timeout: float, voice: Voice) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout
        headers = {HEADER: voice.value, **({"Authorization": f"Bearer {api_key}"} if api_key else {})}
        # A proxy from the environment would resolve loopback to its own machine.
        self._http = httpx2.Client(base_url=self.url, headers=headers, trust_env=not is_loopback(self.url))

    def close(self) -> None:
        """Close all connections of this client."""
        self._http.close()

    def send(
        self, method: str, path: str, model: type[ParsedModel], options: Mapping[str, Any] | None = None
    ) -> ParsedModel:
        """Send one request and parse its response."""
        return parse_model(model, self.respond(method, path, options))

    def respond(self, method: str, path: str, options: Mapping[str, Any] | None = None) -> httpx2.Response:
        """Send one request.

        Args:
            options: Keyword arguments of the HTTP client's `request`.
        """
        with convert_connection_errors(self.url):
            response = self._http.request(method, path, **{"timeout": self._timeout, **(options or {})})
        return raise_for_problem(response)

    def iter_items(self, path: str, model: type[ParsedModel]) -> Iterator[ParsedModel]:
        """Yield all items of a list, fetched page by page."""
        cursor: str | None = None
        while True:
            params = requests.encode_form({"limit": requests.PAGE_SIZE, "after": cursor})
            items, cursor = parse_page(model, self.respond("GET", path, {"params": params}))
            yield from items
            if cursor is None:
                return

    def iter_lines(self, path: str, headers: dict[str, str]) -> Iterator[str]:
        """Lines of a stream of the type that `headers` accept, until it ends or breaks."""
        stream = self._http.stream("GET", path, headers=headers, timeout=self._timeout)
        with convert_connection_errors(self.url), stream as response:
            _check(response)
            if not response.headers.get("Content-Type", "").startswith(headers["Accept"]):
                raise unexpected_response(response)
            yield from response.iter_lines()

    def save(
        self, path: str, params: Mapping[str, str | list[str]], file_path: Path, *, timeout: float | None = None
    ) -> Path:
        """Stream a response into a file, which appears complete or not at all."""
        partial = file_path.with_name(f".{file_path.name}.partial")
        stream = self._http.stream("GET", path, params=params, timeout=timeout or self._timeout)
        try:
            with convert_connection_errors(self.url), stream as response:
                _check(response)
                with partial.open("wb") as file:
                    for block in response.iter_bytes():
                        file.write(block)
            return partial.replace(file_path)
        finally:
            partial.unlink(missing_ok=True)


def _check(response: httpx2.Response) -> None:
    """Raise for a problem whose body has not been read yet."""
    if not response.is_success:
        response.read()
        raise_for_problem(response)
