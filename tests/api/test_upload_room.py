"""What is announced is reserved: uploads are refused before they fill the disk, however many come at once."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from api_builders import npz
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.base.settings import Settings
from datalens_service.store.datasets import upload_sessions
from datalens_service.store.datasets.upload_room import SPARE_BYTES, incoming_folder, open_incoming

TUS = {"Tus-Resumable": "1.0.0"}
LONG = 1_200_000_000


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class Disk:
    """A disk whose free room falls by the bytes that uploads put there."""

    def __init__(self, data_dir: Path) -> None:
        self.free = 0
        self._folders = [upload_sessions.partial_files(data_dir), incoming_folder(data_dir)]

    def usage(self, _: Path) -> Usage:
        taken = sum(path.stat().st_size for folder in self._folders if folder.exists() for path in folder.iterdir())
        return Usage(0, taken, self.free - taken)


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_upload_bytes": 2**32})


@pytest.fixture
def disk(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk(settings.data_dir)
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    return disk


def announce(client: TestClient, length: int) -> Any:
    return client.post("/v1/uploads", headers={**TUS, "Upload-Length": str(length)})


def append(client: TestClient, place: str, content: bytes, offset: int = 0) -> Any:
    headers = {**TUS, "Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
    return client.patch(place, headers=headers, content=content)


@pytest.mark.parametrize(("free", "accepted"), [(2_600_000_000, 1), (4_600_000_000, 2), (SPARE_BYTES + LONG - 1, 0)])
def test_what_is_announced_is_reserved(client: TestClient, disk: Disk, free: int, accepted: int) -> None:
    disk.free = free
    replies = [announce(client, LONG) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [201] * accepted + [503] * (3 - accepted)
    assert replies[-1].json()["code"] == "insufficient-storage"
    assert "1,200,000,000 bytes" in replies[-1].json()["detail"]


def test_what_has_come_is_reserved_no_more_and_what_is_given_up_neither(client: TestClient, disk: Disk) -> None:
    disk.free = SPARE_BYTES + 1000
    place = announce(client, 1000).headers["Location"]
    assert append(client, place, bytes(600)).status_code == 204
    assert announce(client, 1).status_code == 503
    assert append(client, place, bytes(400), 600).status_code == 204
    disk.free += 1
    assert announce(client, 2).status_code == 503
    assert announce(client, 1).status_code == 201
    assert client.delete(place, headers=TUS).status_code == 204
    assert announce(client, 1000).status_code == 201


def test_uploads_that_are_announced_at_once_do_not_overlook_each_other(
    services: Services, client: TestClient, disk: Disk
) -> None:
    disk.free = SPARE_BYTES + 5 * LONG
    begin = threading.Barrier(12)

    def one(_: int) -> int:
        begin.wait()
        return int(announce(client, LONG).status_code)

    with ThreadPoolExecutor(12) as threads:
        answered = sorted(threads.map(one, range(12)))
    assert answered == [201] * 5 + [503] * 7
    assert len(upload_sessions.read_lengths(services.database)) == 5


def test_files_within_requests_are_reserved_as_well(client: TestClient, services: Services, disk: Disk) -> None:
    content = npz()
    disk.free = SPARE_BYTES + len(content)
    reply = client.post("/v1/datasets", files={"file": content}, data={"epsilon": "3"})
    assert (reply.status_code, reply.json()["code"]) == (503, "insufficient-storage")
    disk.free = SPARE_BYTES + 2 * len(content)
    file, path = open_incoming(services.settings.data_dir, len(content))
    with file:
        assert client.post("/v1/datasets", files={"file": content}, data={"epsilon": "3"}).status_code == 503
    path.unlink()
    assert client.post("/v1/datasets", files={"file": content}, data={"epsilon": "3"}).status_code == 202
    assert {path.name for path in incoming_folder(services.settings.data_dir).iterdir()} == set()


def test_a_body_without_a_length_takes_room_as_it_comes(client: TestClient, disk: Disk, services: Services) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + bytes(40 * 2**20)
    disk.free = SPARE_BYTES + 2**25
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    reply = client.post("/v1/datasets", content=iter([body]), headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (503, "insufficient-storage")
    assert disk.usage(Path()).free == disk.free
