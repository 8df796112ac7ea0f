"""Over a real socket: what a client sees that sends too much, hangs up, or downloads in parts."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import httpx2
import pytest
import structlog
from api_builders import npz

from datalens_service.store.datasets import datasets
from datalens_service.store.datasets.upload_room import incoming_folder
from in_process_service import PATIENCE, InProcessService, wait_until

FORM = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nPK\x03\x04'


def incoming(service: InProcessService) -> list[Path]:
    """Files of uploads that are being received."""
    folder = incoming_folder(service.services.settings.data_dir)
    return list(folder.iterdir()) if folder.exists() else []


def begin_upload(service: InProcessService, declared: int, key: str) -> socket.socket:
    """A connection on which an upload has begun."""
    connection = socket.create_connection(("127.0.0.1", service.port))
    head = (
        "POST /v1/datasets HTTP/1.1\r\nHost: service\r\n"
        f"Authorization: Bearer {key}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        f"Content-Length: {declared}\r\n\r\n"
    )
    connection.sendall(head.encode() + FORM)
    return connection


def test_declared_length_is_refused_before_the_body_comes(service: InProcessService) -> None:
    with begin_upload(service, 2**30, service.api_key) as connection:
        assert connection.recv(64).startswith(b"HTTP/1.1 413")
    assert incoming(service) == []


def test_key_is_checked_before_the_body_comes(service: InProcessService) -> None:
    with begin_upload(service, 2**19, "dlk_wrong") as connection:
        assert connection.recv(64).startswith(b"HTTP/1.1 401")
    assert not incoming_folder(service.services.settings.data_dir).exists()


def test_hanging_up_leaves_nothing(service: InProcessService, capfd: pytest.CaptureFixture[str]) -> None:
    connection = begin_upload(service, 2**19, service.api_key)
    wait_until(lambda: incoming(service))
    structlog.get_logger().warning("what another thread may say at any time")
    connection.close()
    wait_until(lambda: not incoming(service))
    assert datasets.list_datasets(service.services.database).items == ()
    printed: list[str] = []

    def requests() -> list[dict[str, Any]]:
        """Lines of requests so far; the service has lines of its own, which come when they come."""
        printed.append(capfd.readouterr().err)
        complete, _, _ = "".join(printed).rpartition("\n")
        return [line for line in map(json.loads, complete.splitlines()) if line["event"] == "request"]

    # The line is written last, when the file is gone.
    wait_until(requests)
    assert [line["status"] for line in requests()] == [499]


def test_requests_are_answered_while_an_upload_is_checked(
    service: InProcessService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Checking an upload blocks a thread, not the service."""
    checking, go_on = threading.Event(), threading.Event()

    def slow(*_: object, **_options: object) -> None:
        checking.set()
        assert go_on.wait(PATIENCE)
        raise OSError

    monkeypatch.setattr("datalens_service.services.ingestion.decode", slow)
    headers = {"Authorization": f"Bearer {service.api_key}"}
    send = threading.Thread(
        target=lambda: httpx2.post(
            f"{service.url}/v1/datasets", files={"file": npz()}, headers=headers, timeout=2 * PATIENCE
        )
    )
    send.start()
    assert checking.wait(PATIENCE)
    assert httpx2.get(f"{service.url}/v1/jobs", headers=headers, timeout=PATIENCE).status_code == 200
    go_on.set()
    send.join()
    assert incoming(service) == []
