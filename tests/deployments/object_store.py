"""An S3 server on this machine whose answers can be spoiled, one kind at a time."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.server import ThreadedMotoServer

Answer = Callable[..., Iterable[bytes]]
_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_BROKEN = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
_MISSING = b"<Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>"
FAULTS = ("broken", "slow", "truncated", "missing", "altered", "expired")


class ObjectStore:
    """Nothing of it leaves this machine.

    Attributes:
        url: Its address.
        slow_seconds: Delay of each answer while it is `slow`.
    """

    def __init__(self, slow_seconds: float = 30.0) -> None:
        self.slow_seconds = slow_seconds
        self._fault: str | None = None
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        server: Any = self._server._server
        self._application, server.app = server.app, self._answer

    @contextmanager
    def spoiled(self, fault: str) -> Iterator[None]:
        """Meanwhile, every answer is spoiled; reads alone for what only a read can have."""
        self._fault = fault
        try:
            yield
        finally:
            self._fault = None

    def close(self) -> None:
        self._server.stop()

    def _answer(self, environment: dict[str, Any], start: Answer) -> Iterable[bytes]:
        fault = self._fault
        if fault == "slow":
            time.sleep(self.slow_seconds)
        refusals = {"broken": ("500 Internal Server Error", _BROKEN), "expired": ("400 Bad Request", _EXPIRED)}
        reads = environment["REQUEST_METHOD"] == "GET" and "list-type" not in environment["QUERY_STRING"]
        if reads:
            refusals["missing"] = ("404 Not Found", _MISSING)
        if fault in refusals:
            status, body = refusals[fault]
            start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        answered = self._application(environment, start)
        if not reads or fault not in ("truncated", "altered"):
            return answered
        body = b"".join(answered)
        return [body[: len(body) // 2] if fault == "truncated" else bytes(byte ^ 1 for byte in body)]
