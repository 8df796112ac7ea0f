"""A service that answers what a test wants."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class FakeService(ThreadingHTTPServer):
    """Gives the same answer to every GET, and another to every POST, and remembers what was asked.

    Attributes:
        requests: Path, headers and body of each request.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.headers: dict[str, str] = {}
        self.body = b""
        self.posted = 200, b""
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeService

    def do_GET(self) -> None:
        self._answer(self.server.status, self.server.body)

    def do_POST(self) -> None:
        self._answer(*self.server.posted)

    def _answer(self, status: int, body: bytes) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.path, dict(self.headers), sent))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[FakeService]:
    with FakeService() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
