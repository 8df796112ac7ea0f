"""One HTTP request to the service: the answer, or a `ClientError` that says what to change."""

from __future__ import annotations

import ipaddress
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from pydantic import ValidationError

from datalens_service.client.replies import Reply

AnyReply = TypeVar("AnyReply", bound=Reply)


class ClientError(Exception):
    """The service refused a request.

    Attributes:
        slug: Stable name of the problem type, for example `privacy-budget-exceeded`.
        title: The type in words.
        detail: What to change.
        status: HTTP status; None if there was no answer.
        problem: The whole problem document; empty if there was none.
        request: Method and path that were refused; empty if nothing was sent.
        request_id: Names the request in the service's log; None if it has no name.
    """

    def __init__(
        self,
        slug: str,
        title: str,
        detail: str,
        *,
        status: int | None = None,
        problem: dict[str, Any] | None = None,
        request: str = "",
        request_id: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.slug = slug
        self.title = title
        self.detail = detail
        self.status = status
        self.problem = problem or {}
        self.request = request
        self.request_id = request_id


class ServiceUnreachable(ClientError):
    """No service answered at this address."""

    def __init__(self, detail: str) -> None:
        super().__init__("service-unreachable", "The service cannot be reached", detail)


class Transport:
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
        self._http = httpx2.Client(**client_options(self.url, api_key))

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def request(self, method: str, address: str, **options: Any) -> httpx2.Response:
        """The successful answer to one request.

        Raises:
            ClientError: The service refused.
            ServiceUnreachable: Nobody answered.
        """
        with reaching(self.url):
            reply = self._http.request(method, address, **{"timeout": self._timeout, **options})
        return checked(reply)

    def lines(self, address: str, headers: dict[str, str]) -> Iterator[str]:
        """Lines of a stream, until it ends or breaks.

        Raises:
            ClientError: The service refused.
            ServiceUnreachable: Nobody answered, or the connection broke.
        """
        with (
            reaching(self.url),
            self._http.stream("GET", address, headers=headers, timeout=self._timeout) as reply,
        ):
            if not reply.is_success:
                reply.read()
                checked(reply)
            yield from reply.iter_lines()

    def save(self, address: str, params: dict[str, str], path: Path, *, timeout: float | None = None) -> Path:
        """Stream an answer into a file, which appears complete or not at all.

        Raises:
            ClientError: The service refused.
            ServiceUnreachable: Nobody answered, or the connection broke.
        """
        partial = path.with_name(f".{path.name}.partial")
        try:
            with (
                reaching(self.url),
                self._http.stream("GET", address, params=params, timeout=timeout or self._timeout) as reply,
            ):
                if not reply.is_success:
                    reply.read()
                    checked(reply)
                with partial.open("wb") as file:
                    for block in reply.iter_bytes():
                        file.write(block)
            return partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def is_loopback(url: str) -> bool:
    """Whether an address means this machine.

    Raises:
        ClientError: Not an HTTP address.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL:
        parsed = httpx2.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ClientError("invalid-url", "Not an address", f"{url!r} is not an address like http://127.0.0.1:8000.")
    try:
        return ipaddress.ip_address(parsed.host).is_loopback
    except ValueError:
        return parsed.host == "localhost"


def parsed(model: type[AnyReply], reply: httpx2.Response) -> AnyReply:
    """The answer as `model`.

    Raises:
        ClientError: Something else came back.
    """
    try:
        return model.model_validate_json(reply.content)
    except ValidationError as error:
        raise _unexpected(reply) from error


def json_object(reply: httpx2.Response) -> dict[str, Any]:
    """The answer as a JSON object.

    Raises:
        ClientError: Something else came back.
    """
    try:
        content = reply.json()
    except ValueError as error:
        raise _unexpected(reply) from error
    if not isinstance(content, dict):
        raise _unexpected(reply)
    return content


def client_options(url: str, api_key: str) -> dict[str, Any]:
    """How connections to a service are opened.

    Raises:
        ClientError: `url` is not an HTTP address.
    """
    return {
        "base_url": url,
        "headers": {"Authorization": f"Bearer {api_key}"} if api_key else {},
        # A proxy of the environment would look for loopback on its own machine.
        "trust_env": not is_loopback(url),
    }


@contextmanager
def reaching(url: str) -> Generator[None]:
    """Say of a connection that fails what it means.

    Raises:
        ServiceUnreachable: It did.
    """
    try:
        yield
    except httpx2.RequestError as error:
        raise ServiceUnreachable(
            f"No answer from {url} ({type(error).__name__}): start it with `datalens serve`, or name another address."
        ) from error


def checked(reply: httpx2.Response) -> httpx2.Response:
    """The answer, if it is a successful one.

    Raises:
        ClientError: It is a problem, or of something else than this service.
    """
    if reply.is_success:
        return reply
    problem = json_object(reply)
    if not {"code", "title", "detail"} <= problem.keys():
        raise _unexpected(reply)
    error = ClientError(
        str(problem["code"]),
        str(problem["title"]),
        str(problem["detail"]),
        status=reply.status_code,
        problem=problem,
        request=f"{reply.request.method} {reply.request.url.path}",
        request_id=reply.headers.get("X-Request-ID"),
    )
    error.add_note(f"{error.request} → {error.status} {error.slug}; request {error.request_id} in the log.")
    raise error


def _unexpected(reply: httpx2.Response) -> ClientError:
    return ClientError(
        "unexpected-answer",
        "The service gave an unexpected answer",
        f"{reply.url} (status {reply.status_code}) did not answer like this version of the service: "
        "check the address, and that client and service have the same version.",
        status=reply.status_code,
    )
