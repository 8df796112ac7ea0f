"""A full disk is a problem of its own, 503 wherever it is met, and leaves nothing half-written."""

import errno
import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from api_builders import arrays, browser, npz, send_images, succeed, training
from starlette.testclient import TestClient

from datalens_service.adapters.startup import check_disks
from datalens_service.api.deps import Services
from datalens_service.api.uploads import tus
from datalens_service.base.errors import InsufficientStorage
from datalens_service.base.settings import Settings
from datalens_service.data.intake.sandbox import decode, exchange
from datalens_service.services import ingestion
from datalens_service.store.datasets import upload_room
from disks import SmallDisk, small_disk
from other_programs import do_without

TUS = {"Tus-Resumable": "1.0.0"}
LONG = np.random.default_rng(1).bytes(2**18)


@pytest.fixture
def settings(disk: SmallDisk, settings: Settings) -> Iterator[Settings]:
    """The service of the other tests, with everything it writes on the small disk."""
    shutil.copy(settings.data_dir / "datalens.db", disk.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upload_room, "SPARE_BYTES", 0)
        yield settings.model_copy(update={"data_dir": disk.folder})


def noise() -> bytes:
    """An upload that is as long as its records."""
    buffer = io.BytesIO()
    images = np.random.default_rng(2).integers(0, 256, (200, 40, 40), dtype=np.uint8)
    np.savez(buffer, **{**arrays(), "images": images})
    return buffer.getvalue()


def said(reply: Any) -> tuple[int, str, bool]:
    return reply.status_code, reply.json()["code"], "Retry-After" in reply.headers


FULL = (503, "insufficient-storage", True)


def files(folder: Path) -> set[str]:
    """What was uploaded or made from it, also in part."""
    folders = [folder / name for name in ("incoming", "datasets", "uploads", "generators", "cache")]
    return {path.name for place in folders for path in place.rglob("*") if path.is_file()} - {".lock"}


def test_an_upload_that_does_not_fit(client: TestClient, disk: SmallDisk) -> None:
    with disk.full():
        reply = send_images(client, noise())
        assert said(reply) == FULL
        assert files(disk.folder) == set()
    assert send_images(client, noise()).status_code == 201


def test_records_that_do_not_fit(client: TestClient, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has room, and what is made of it has not."""
    content = npz(images=np.zeros((200, 64, 64), dtype=np.uint8))
    if not disk.real:
        monkeypatch.setattr(ingestion, "decode", no_room)
    with disk.full(len(content) + 2**18):
        assert said(send_images(client, content)) == FULL
        assert files(disk.folder) == set()
    monkeypatch.undo()
    assert send_images(client, content).status_code == 201


def no_room(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_the_process_that_reads_files_blames_the_disk_and_not_the_file(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where there is no room for its answer."""
    monkeypatch.setattr(Path, "write_text", no_room)
    monkeypatch.setattr(exchange, "confine", lambda *_, **__: None)
    monkeypatch.setattr(decode, "read_records", lambda *_: exchange.ReadingOutcome())
    monkeypatch.setattr(decode.sys, "stdin", io.TextIOWrapper(io.BytesIO(REQUEST)))
    with pytest.raises(SystemExit) as ended:
        decode.main()
    assert ended.value.code == os.EX_IOERR


REQUEST = b"""{"path": "/x", "folder": "/x", "choices": {}, "memory_bytes": 1, "cpu_seconds": 1}"""


def test_a_piece_of_a_resumable_upload(client: TestClient, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    place = client.post("/v1/uploads", headers={**TUS, "Upload-Length": str(len(LONG))}).headers["Location"]
    piece = {**TUS, "Content-Type": tus.MEDIA_TYPE, "Upload-Offset": "0"}
    with disk.full():
        assert said(client.patch(place, headers=piece, content=LONG)) == FULL
        assert client.head(place, headers=TUS).headers["Upload-Offset"] == "0"
        assert sum(path.stat().st_size for path in (disk.folder / "uploads").iterdir()) == 0
    assert client.patch(place, headers=piece, content=LONG).status_code == 204


def test_an_upload_without_room_is_refused_before_the_first_byte(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 0))
    assert said(client.post("/v1/uploads", headers={**TUS, "Upload-Length": "1000"})) == FULL


def test_a_write_to_the_database(client: TestClient, dataset_id: str, disk: SmallDisk) -> None:
    before = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    replies = []
    with disk.full():
        while (reply := client.post("/v1/jobs", json=training(dataset_id, epsilon=0.01))).status_code == 202:
            replies.append(reply.json()["id"])
            assert len(replies) < 500
    assert said(reply) == FULL
    listed = client.get("/v1/jobs", params={"limit": 100}).json()["items"]
    assert {job["id"] for job in listed} <= set(replies)
    after = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    assert after["last_entry"] == before["last_entry"] + len(replies)
    assert client.post("/v1/jobs", json=training(dataset_id, epsilon=0.01)).status_code == 202


def test_images_that_are_packed_for_a_download(
    client: TestClient, services: Services, dataset_id: str, disk: SmallDisk, tmp_path: Path
) -> None:
    job = client.post("/v1/jobs", json=training(dataset_id, synthetic_images=2000)).json()
    succeed(services, job["id"], tmp_path)
    path = f"/v1/jobs/{job['id']}/synthetic?format=webdataset"
    with disk.full():
        assert said(client.get(path)) == FULL
        assert files(disk.folder / "cache") == set()
    assert client.get(path).status_code == 200


class Usage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


def test_a_full_disk_is_said_and_no_job_is_accepted_that_would_wait_for_it(
    client: TestClient, services: Services, dataset_id: str, disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = client.post("/v1/jobs", json=training(dataset_id, epsilon=0.01)).json()
    assert job["waiting_reason"] is None
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 0))
        assert said(client.post("/v1/jobs", json=training(dataset_id, epsilon=0.01))) == FULL
        assert said(client.post(f"/v1/jobs/{job['id']}:clone")) == FULL
        services.surroundings.look()
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
        assert "disk of DATALENS_DATA_DIR" in ready.json()["degraded"]["disk"]
        assert 'datalens_degraded{part="disk"} 1.0' in client.get("/metrics").text
        assert "disk of DATALENS_DATA_DIR" in client.get(f"/v1/jobs/{job['id']}").json()["waiting_reason"]
        assert "is full or cannot be written" in browser(client).get(f"/jobs/{job['id']}").text
    services.surroundings.look()
    assert client.get("/readyz").json()["status"] == "ok"
    assert client.get(f"/v1/jobs/{job['id']}").json()["waiting_reason"] is None


@pytest.mark.parametrize("how", ["mounted", "linked", "mounted below a folder"])
def test_a_full_disk_below_the_data_folder_is_said(
    client: TestClient, services: Services, tmp_path: Path, how: str
) -> None:
    place = services.settings.data_dir / ("cache/a b" if how == "mounted below a folder" else "artifacts")
    if how == "linked":
        (tmp_path / "other").mkdir()
        place.symlink_to(tmp_path / "other")
        place = tmp_path / "other"
    else:
        place.mkdir(parents=True)
    with small_disk(place) as disk:
        if not disk.real:
            do_without("nothing can be mounted here")
        services.surroundings.look()
        assert client.get("/readyz").json()["degraded"] == {}
        with disk.full():
            services.surroundings.look()
            said = client.get("/readyz").json()["degraded"]["disk"]
            assert ("a b" if how == "mounted below a folder" else "artifacts") in said
            metrics = client.get("/metrics").text
            assert 'disk="data/' in metrics
        services.surroundings.look()
        assert client.get("/readyz").json()["degraded"] == {}


@pytest.mark.parametrize("place", ["ledger_log", "database_url"])
def test_the_service_is_not_ready_without_room_for_charges(
    services: Services, disk: SmallDisk, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger log, and SQLite, may be on other disks than data_dir."""
    disk_usage = shutil.disk_usage
    full = {"ledger_log": disk.folder / "ledger.log", "database_url": f"sqlite:///{disk.folder / 'datalens.db'}"}
    apart = {"data_dir": tmp_path, "ledger_log": tmp_path / "x", "database_url": f"sqlite:///{tmp_path / 'x.db'}"}
    settings = services.settings.model_copy(update={**apart, place: full[place]})
    check_disks(settings)
    monkeypatch.setattr(shutil, "disk_usage", lambda at: Usage(0, 0, 0) if at == disk.folder else disk_usage(at))
    with pytest.raises(InsufficientStorage, match={"ledger_log": "the ledger log", "database_url": "database"}[place]):
        check_disks(settings)
