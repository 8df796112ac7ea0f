"""An object store that fails in every way, while records come in, while a job runs, and while a file is fetched.

Nothing that fails is an error of the service, nothing is half there afterwards, and no job is lost to what passes.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from api_builders import claimed, send_images, training
from s3fs import S3FileSystem
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.base.errors import StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.jobs.execute import execute
from datalens_service.store.datasets import files
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from deployments.object_store import FAULTS, ObjectStore

PASSING = ("broken", "expired", "truncated")
LOST = ("missing", "altered")
"""What no later try mends."""


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """With an empty bucket; this process is a client of it, and reads what clients are made of once."""
    started = ObjectStore(slow_seconds=0.1)
    names = {"AWS_ENDPOINT_URL": started.url, "AWS_ACCESS_KEY_ID": "canary", "AWS_SECRET_ACCESS_KEY": "canary0secret"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**names, "AWS_DEFAULT_REGION": "us-east-1"}.items():
            patch.setenv(name, value)
        # Between five tries it would wait for two seconds in all.
        patch.setattr(S3FileSystem, "retries", 2)
        S3FileSystem.clear_instance_cache()
        boto3.client("s3", endpoint_url=started.url).create_bucket(Bucket="bucket")
        yield started
    S3FileSystem.clear_instance_cache()
    started.close()


@pytest.fixture
def settings(settings: Settings, store: ObjectStore, tmp_path: Path) -> Settings:
    key = tmp_path / "records.key"
    key.write_bytes(os.urandom(32))
    remote = {"artifact_url": "s3://bucket/files", "records_url": "s3://bucket/records", "records_key_file": key}
    return settings.model_copy(update=remote)


def upload(client: TestClient) -> tuple[int, str]:
    reply = send_images(client)
    return reply.status_code, reply.json().get("code", "")


@pytest.fixture
def job_id(client: TestClient, dataset_id: str) -> str:
    made = client.post("/v1/jobs", json=training(dataset_id, evaluation={"enabled": False}))
    return str(made.json()["id"])


def run(services: Services, job_id: str) -> JobState:
    """The state of the job after one process has tried it."""
    lease = claimed(services, job_id)
    try:
        return execute(services.database, services.artifacts, services.settings, lease).state
    except StoreUnavailable:
        return leases.give_back(services.database, lease).state


@pytest.mark.parametrize("fault", FAULTS)
def test_an_upload_is_refused_or_kept_as_a_whole(client: TestClient, store: ObjectStore, fault: str) -> None:
    refused = fault in ("broken", "expired")
    with store.spoiled(fault):
        assert upload(client) == ((503, "store-unavailable") if refused else (201, ""))
    assert len(client.get("/v1/datasets").json()["items"]) == (not refused)
    assert upload(client) == (201, "")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_job_waits_for_what_passes_and_fails_for_what_is_lost(
    services: Services, job_id: str, store: ObjectStore, fault: str
) -> None:
    expected = {
        "slow": JobState.SUCCEEDED,
        **dict.fromkeys(PASSING, JobState.QUEUED),
        **dict.fromkeys(LOST, JobState.FAILED),
    }
    with store.spoiled(fault):
        assert run(services, job_id) == expected[fault]
    if fault in LOST:
        assert (jobs.get(services.database, job_id).error or {})["type"] == "file-damaged"
    elif fault in PASSING:
        assert run(services, job_id) == JobState.SUCCEEDED


def test_a_download_is_whole_or_refused(
    client: TestClient, services: Services, job_id: str, store: ObjectStore
) -> None:
    run(services, job_id)
    address = f"/v1/jobs/{job_id}/generator"
    # What was fetched once is kept: the fault that only takes time comes last.
    for fault in sorted(FAULTS, key="slow".__eq__):
        with store.spoiled(fault):
            assert client.get(address).status_code == {"slow": 200, "missing": 404}.get(fault, 503), fault
    assert client.get(address).status_code == 200


def test_a_store_that_fails_is_told(
    client: TestClient, services: Services, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_PROBE_SECONDS", 0.0)
    services.surroundings.look()
    assert client.get("/readyz").json()["degraded"] == {}
    for fault in ("broken", "expired", "missing", "altered"):
        with store.spoiled(fault):
            services.surroundings.look()
            assert client.get("/readyz").json()["degraded"].keys() == {"artifact_store", "record_store"}, fault
        services.surroundings.look()
        assert client.get("/readyz").json()["degraded"] == {}, fault


def test_a_store_that_takes_nothing_more_is_told(
    client: TestClient, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bucket answers, but the credentials may only read, say."""
    monkeypatch.setattr(files, "_PROBE_SECONDS", 0.0)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Access Denied")

    with monkeypatch.context() as patch:
        patch.setattr(files.open_store("s3://bucket/files")[0], "pipe_file", refuse)
        services.surroundings.look()
        assert client.get("/readyz").json()["degraded"].keys() == {"artifact_store", "record_store"}


def test_a_store_is_not_written_to_at_every_look(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket, written = files.open_store("s3://bucket/files")[0], list[str]()
    pipe = bucket.pipe_file

    def note(path: str, content: bytes) -> None:
        written.append(path)
        pipe(path, content)

    # What the service itself has looked at when it started is not counted.
    services.surroundings.look()
    monkeypatch.setattr(bucket, "pipe_file", note)
    services.surroundings.look()
    assert written == []
    later = time.monotonic() + 2 * files._PROBE_SECONDS
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: later))
    services.surroundings.look()
    assert sorted(written) == ["bucket/files/.datalens-probe", "bucket/records/.datalens-probe"]
