"""Clients that take for ever hold nothing for ever: heads, bodies of JSON, and files without a byte."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from datalens_service.api.http import middleware
from datalens_service.api.uploads import receiver
from datalens_service.base.settings import Settings
from datalens_service.cli import api_server
from datalens_service.store.access import keys
from datalens_service.store.datasets.upload_sessions import partial_files
from in_process_service import PATIENCE, InProcessService, wait_until

SHORT = 0.2
HEAD = b"GET /livez HTTP/1.1\r\nHost: service\r\n"
TUS = {"Tus-Resumable": "1.0.0"}


@pytest.fixture
def service(settings: Settings) -> Iterator[InProcessService]:
    running = InProcessService(settings)
    yield running
    running.stop()


@pytest.fixture
def heads_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_server, "HEAD_SECONDS", SHORT)


def connect(service: InProcessService) -> socket.socket:
    return socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)


def read_all(connection: socket.socket) -> bytes:
    """What comes until the service closes the connection."""
    came = b""
    while piece := connection.recv(65536):
        came += piece
    return came


def begin(service: InProcessService, path: str, length: int, *headers: str, method: str = "POST") -> socket.socket:
    """A connection with the head of a request whose body is awaited."""
    connection = connect(service)
    lines = (
        f"{method} {path} HTTP/1.1", "Host: service", f"Authorization: Bearer {service.api_key}",
        f"Content-Length: {length}", *headers,
    )  # fmt: skip
    connection.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    return connection


@pytest.mark.parametrize("sent", [b"", b"GET /li", HEAD])
def test_connections_with_half_a_head_are_closed(heads_are_short: None, service: InProcessService, sent: bytes) -> None:
    with ExitStack() as held:
        connections = [held.enter_context(connect(service)) for _ in range(60)]
        for connection in connections:
            connection.sendall(sent)
        assert {read_all(connection) for connection in connections} == {b""}
    assert httpx2.get(f"{service.url}/livez", trust_env=False, timeout=PATIENCE).status_code == 200


def test_a_further_head_on_a_connection_that_was_used_has_no_more_time(
    heads_are_short: None, service: InProcessService
) -> None:
    with connect(service) as connection:
        connection.sendall(HEAD + b"\r\n" + HEAD)
        came = read_all(connection)
    assert came.count(b"HTTP/1.1 200") == 1


def drip(connection: socket.socket) -> None:
    """Send a byte now and then."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        connection.sendall(b"X")
        time.sleep(SHORT / 10)


def test_a_head_that_comes_byte_by_byte_is_given_up(heads_are_short: None, service: InProcessService) -> None:
    with connect(service) as connection, pytest.raises(OSError, match=r"reset|[Bb]roken"):
        drip(connection)


def test_what_follows_an_answer_is_not_awaited(heads_are_short: None, service: InProcessService) -> None:
    with connect(service) as connection:
        connection.sendall(HEAD.replace(b"GET /livez", b"POST /v1/datasets") + b"Content-Length: 1000\r\n\r\nx")
        assert read_all(connection).startswith(b"HTTP/1.1 4")


def test_a_request_that_takes_its_time_over_its_answer_is_not_given_up(
    heads_are_short: None, service: InProcessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "_JSON_SECONDS", SHORT)
    monkeypatch.setattr(service.services.database, "check", lambda: time.sleep(5 * SHORT))
    assert httpx2.get(f"{service.url}/readyz", trust_env=False, timeout=PATIENCE).status_code == 200


def test_json_that_does_not_come_is_given_up(service: InProcessService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_JSON_SECONDS", SHORT)
    with begin(service, "/v1/jobs", 100, "Content-Type: application/json") as connection:
        connection.sendall(b"{")
        head, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408")
    assert json.loads(body)["code"] == "request-timeout"


def test_a_piece_of_an_upload_that_stops_is_given_up_and_what_came_is_kept(
    service: InProcessService, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    headers = {**TUS, "Authorization": f"Bearer {service.api_key}"}
    with httpx2.Client(base_url=service.url, headers=headers, trust_env=False, timeout=PATIENCE) as http:
        place = http.post("/v1/uploads", headers={"Upload-Length": "1000"}).headers["Location"]
        piece = ("Tus-Resumable: 1.0.0", "Upload-Offset: 0", "Content-Type: application/offset+octet-stream")
        with begin(service, place, 1000, *piece, method="PATCH") as connection:
            connection.sendall(bytes(599))
            path = partial_files(settings.data_dir) / place.rpartition("/")[2]
            wait_until(lambda: path.exists() and path.stat().st_size == 599)
            monkeypatch.setattr(middleware, "_PIECE_SECONDS", SHORT)
            connection.sendall(bytes(1))
            assert connection.recv(65536).startswith(b"HTTP/1.1 408")
        assert http.head(place).headers["Upload-Offset"] == "600"


def announce(service: InProcessService, length: int) -> str:
    headers = {**TUS, "Authorization": f"Bearer {service.api_key}", "Upload-Length": str(length)}
    place = httpx2.post(f"{service.url}/v1/uploads", headers=headers, trust_env=False, timeout=PATIENCE)
    return place.headers["Location"]


def begin_piece(service: InProcessService, place: str, length: int) -> socket.socket:
    piece = ("Tus-Resumable: 1.0.0", "Upload-Offset: 0", "Content-Type: application/offset+octet-stream")
    return begin(service, place, length, *piece, method="PATCH")


def test_a_piece_of_an_upload_that_comes_byte_by_byte_is_given_up(
    service: InProcessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pause is too long, and the bytes do not buy the time they take."""
    monkeypatch.setattr(middleware, "_PIECE_SECONDS", SHORT)
    place = announce(service, 10**6)
    with begin_piece(service, place, 10**6) as connection, pytest.raises(OSError, match=r"reset|[Bb]roken"):
        drip(connection)


def test_a_piece_of_an_upload_that_comes_slowly_but_steadily_is_taken(
    service: InProcessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "_PIECE_SECONDS", 5 * SHORT)
    # A byte buys a minute.
    monkeypatch.setattr(middleware, "_SLOWEST_BYTES", 1 / 60)
    place = announce(service, 20)
    with begin_piece(service, place, 20) as connection:
        for _ in range(20):
            connection.sendall(b"X")
            time.sleep(SHORT / 2)
        assert connection.recv(65536).startswith(b"HTTP/1.1 204")


@pytest.mark.parametrize("in_a_form", [False, True])
def test_a_key_that_is_revoked_sends_no_more_of_a_file(
    service: InProcessService, monkeypatch: pytest.MonkeyPatch, settings: Settings, in_a_form: bool
) -> None:
    monkeypatch.setattr(receiver, "_ADMITTED_SECONDS", 0)
    key, plain = keys.create(service.services.database, "leaves")
    owner, service.api_key = service.api_key, plain
    place = announce(service, 10**6)
    form = begin(service, "/v1/datasets", 10**6, "Content-Type: multipart/form-data; boundary=x") if in_a_form else None
    with form or begin_piece(service, place, 10**6) as connection:
        if in_a_form:
            connection.sendall(b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nPK')
            wait_until(lambda: bool(list((settings.data_dir / "incoming").glob("upload-*"))))
        else:
            connection.sendall(bytes(600))
            path = partial_files(settings.data_dir) / place.rpartition("/")[2]
            wait_until(lambda: path.exists() and path.stat().st_size == 600)
        keys.revoke(service.services.database, key.id)
        connection.sendall(bytes(400))
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 401")
    assert not list((settings.data_dir / "incoming").glob("upload-*"))
    if not in_a_form:
        headers = {**TUS, "Authorization": f"Bearer {owner}"}
        kept = httpx2.head(f"{service.url}{place}", headers=headers, trust_env=False, timeout=PATIENCE)
        assert kept.headers["Upload-Offset"] == "600"


def test_a_file_in_a_form_that_stops_is_given_up_and_leaves_nothing(
    service: InProcessService, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(middleware, "_PIECE_SECONDS", SHORT)
    with begin(service, "/v1/datasets", 1000, "Content-Type: multipart/form-data; boundary=x") as connection:
        connection.sendall(b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nPK')
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")
    assert list(Path(settings.data_dir / "incoming").iterdir()) == []
