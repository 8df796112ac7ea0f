"""One disk of the service is full or read-only, all others are in order: what needs it waits or is refused."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from api_builders import bearer, send_images, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.jobs.execute import execute
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from disks import SmallDisk, small_disk
from other_programs import do_without

PLACES = ("incoming", "datasets", "artifacts", "private", "temporary", "log", "database")
REFUSE_UPLOADS = ("incoming", "datasets", "database")
REFUSE_JOBS = ("log", "database")
HOLD_JOBS = ("artifacts", "private", "log", "database")
CASES = [
    (place, kind) for place in PLACES for kind in ("full", "read-only") if (place, kind) != ("database", "read-only")
]
"""A file system with an open database cannot be made read-only."""


@pytest.fixture
def service(tmp_path: Path, sqlite_template: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """With a folder for each place; a test has mounted a disk on one of them."""
    for place in PLACES:
        (tmp_path / place).mkdir(exist_ok=True)
    shutil.copy(sqlite_template, tmp_path / "database" / "store.db")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    settings = Settings(
        data_dir=tmp_path,
        database_url=f"sqlite:///{tmp_path}/database/store.db",
        ledger_log=tmp_path / "log" / "ledger.log",
    )
    with TestClient(create_app(settings), base_url="http://service") as http:
        http.headers.update(bearer(http))
        yield http


@pytest.fixture
def mounted(tmp_path: Path, place: str) -> Iterator[SmallDisk]:
    folder = tmp_path / place
    folder.mkdir()
    with small_disk(folder) as disk:
        if not disk.real:
            do_without("nothing can be mounted here")
        yield disk


@contextmanager
def spoiled(disk: SmallDisk, kind: str) -> Iterator[None]:
    if kind == "full":
        with disk.full():
            yield
        return
    # The service writes a probe to each disk now and then; while one is open, the kernel says that it is busy.
    while subprocess.run(["mount", "-o", "remount,ro", str(disk.folder)], check=False).returncode:
        time.sleep(0.05)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk.folder)], check=True)


def upload(client: TestClient) -> int:
    return send_images(client).status_code


def run(services: Services, job_id: str) -> str:
    """How the job is after one process has tried it, or why it could not be tried."""
    try:
        lease = leases.claim(services.database, job_id, "test", 600)
    except StoreUnavailable:
        return JobState.QUEUED
    assert lease is not None
    try:
        return execute(services.database, services.artifacts, services.settings, lease).state
    except StoreUnavailable:
        return leases.give_back(services.database, lease).state


@pytest.mark.parametrize(("place", "kind"), CASES)
def test_what_needs_the_disk_waits_or_is_refused(
    mounted: SmallDisk, service: TestClient, place: str, kind: str
) -> None:
    services = service.app.state.services
    with spoiled(mounted, kind):
        assert upload(service) == (503 if place in REFUSE_UPLOADS else 201)
    assert upload(service) == 201
    dataset_id = service.get("/v1/datasets").json()["items"][0]["id"]
    body = training(dataset_id, evaluation={"enabled": False})
    with spoiled(mounted, kind):
        submitted = service.post("/v1/jobs", json=body)
    assert submitted.status_code == (503 if place in REFUSE_JOBS else 202)
    job_id = (service.post("/v1/jobs", json=body) if place in REFUSE_JOBS else submitted).json()["id"]
    with spoiled(mounted, kind):
        assert run(services, job_id) == (JobState.QUEUED if place in HOLD_JOBS else JobState.SUCCEEDED)
        assert service.get("/readyz").status_code == 200
    if place in HOLD_JOBS:
        assert run(services, job_id) == JobState.SUCCEEDED
    with spoiled(mounted, kind):
        # Who read what is written down first.
        assert service.get(f"/v1/jobs/{job_id}/synthetic").status_code == (503 if place == "database" else 200)
    assert service.get(f"/v1/jobs/{job_id}/synthetic").status_code == 200
    assert service.get(f"/v1/datasets/{dataset_id}/privacy").json()["epsilon_reserved"] == 0
