"""Artifacts in an object store: a real server speaking S3, in this process."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from pydantic import ValidationError
from s3fs import S3FileSystem

from datalens_service.base.errors import FileDamaged, NotFound, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.store.database import Database
from datalens_service.store.datasets import artifacts, files
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.leases import Lease
from deployments.object_store import ObjectStore

from .books import running_job


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Address of the server; nothing of it leaves this machine."""
    server = ObjectStore()
    yield server.url
    server.close()


class Bucket:
    """What lies in the object store, read past the service."""

    def __init__(self, endpoint: str) -> None:
        self.name = f"bucket-{uuid4().hex}"
        self.client = boto3.client("s3", endpoint_url=endpoint)
        self.client.create_bucket(Bucket=self.name)

    def contents(self) -> dict[str, bytes]:
        listed = self.client.list_objects_v2(Bucket=self.name).get("Contents", [])
        return {one["Key"]: self.client.get_object(Bucket=self.name, Key=one["Key"])["Body"].read() for one in listed}

    def replace(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=content)


@pytest.fixture
def bucket(s3: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    for name, value in {
        "AWS_ENDPOINT_URL": s3,
        "AWS_ACCESS_KEY_ID": "canary",
        "AWS_SECRET_ACCESS_KEY": "canary0secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Bucket, "__repr__", lambda self: self.name)
    # It keeps a connection to whichever server came first.
    S3FileSystem.clear_instance_cache()
    return Bucket(s3)


@pytest.fixture
def store(sqlite_database: Database, tmp_path: Path, bucket: Bucket) -> ArtifactStore:
    return ArtifactStore(sqlite_database, tmp_path / "data", f"s3://{bucket.name}/prefix")


@pytest.fixture
def lease(sqlite_database: Database) -> Lease:
    return running_job(sqlite_database)[1]


def put(store: ArtifactStore, lease: Lease, name: str, content: bytes | Path, releasable: bool = True) -> None:
    store.put(lease, name, content, releasable=releasable, media_type="text/plain")


def local_files(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


def test_a_file_goes_to_the_bucket_and_comes_back(
    store: ArtifactStore, lease: Lease, bucket: Bucket, tmp_path: Path
) -> None:
    source = tmp_path / "large"
    source.write_bytes(b"x" * 6_000_000)
    put(store, lease, "generator.safetensors", source)
    assert list(bucket.contents().values()) == [source.read_bytes()]
    assert local_files(tmp_path / "data") == []
    found = store.releasable(lease.job_id, "generator.safetensors")
    assert found.size == 6_000_000
    assert found.path.read_bytes() == source.read_bytes()
    assert found.path.stat().st_mode & 0o077 == 0 or found.path.parent.stat().st_mode & 0o077 == 0


def test_what_the_owner_alone_may_see_stays_on_the_local_disk(
    store: ArtifactStore, sqlite_database: Database, lease: Lease, bucket: Bucket
) -> None:
    put(store, lease, "report.json", b"private", releasable=False)
    assert bucket.contents() == {}
    assert store.get(lease.job_id, "report.json").path.read_bytes() == b"private"
    with pytest.raises(NotFound):
        store.releasable(lease.job_id, "report.json")
    put(store, lease, "card.json", b"public")
    with sqlite_database.transaction() as session:
        artifacts.forget_private(session, jobs.get(sqlite_database, lease.job_id).dataset_id)
    store.remove_files(lease.job_id)
    assert [found.name for found in store.list_artifacts(lease.job_id)] == ["card.json"]
    assert store.releasable(lease.job_id, "card.json").path.read_bytes() == b"public"


def test_a_file_that_is_not_complete_has_no_row(
    store: ArtifactStore, lease: Lease, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies, or the network fails, while the file is on its way."""

    def cut_off(_source: str, target: str) -> None:
        bucket.replace(target.partition("/")[2], b"ha")

    monkeypatch.setattr(store._releasable._files, "put_file", cut_off)
    with pytest.raises(StoreUnavailable, match="could not be written"):
        put(store, lease, "card.json", b"half")
    assert store.list_artifacts(lease.job_id) == ()
    assert local_files(tmp_path / "data") == []


def test_a_later_try_replaces_what_was_left(store: ArtifactStore, lease: Lease, bucket: Bucket) -> None:
    put(store, lease, "card.json", b"whole")
    [key] = bucket.contents()
    bucket.replace(key, b"ha")
    put(store, lease, "card.json", b"whole")
    assert store.get(lease.job_id, "card.json").path.read_bytes() == b"whole"


def test_other_bytes_than_were_put_are_refused(store: ArtifactStore, lease: Lease, bucket: Bucket) -> None:
    put(store, lease, "card.json", b"whole")
    [key] = bucket.contents()
    bucket.replace(key, b"forged")
    with pytest.raises(FileDamaged, match="was altered"):
        _ = store.get(lease.job_id, "card.json").path
    bucket.client.delete_object(Bucket=bucket.name, Key=key)
    with pytest.raises(NotFound):
        _ = store.get(lease.job_id, "card.json").path


def test_files_from_before_the_bucket_are_still_there(
    store: ArtifactStore, sqlite_database: Database, lease: Lease, tmp_path: Path, bucket: Bucket
) -> None:
    put(ArtifactStore(sqlite_database, tmp_path / "data"), lease, "card.json", b"older")
    assert bucket.contents() == {}
    assert store.releasable(lease.job_id, "card.json").path.read_bytes() == b"older"


def test_copies_do_not_pile_up(
    store: ArtifactStore, lease: Lease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_KEPT_COPIES", 2)
    for number in range(4):
        put(store, lease, f"file-{number}", b"%d" % number)
        assert store.get(lease.job_id, f"file-{number}").path.read_bytes() == b"%d" % number
    assert len(local_files(tmp_path / "data")) == 2


def test_a_store_that_hardly_answers_does_not_have_all_threads(
    store: ArtifactStore, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, lease, "card.json", b"whole")
    answering, refused, remote = threading.Event(), threading.Semaphore(0), store._releasable._files
    fetch = remote.get_file
    monkeypatch.setattr(files, "_TURN_SECONDS", 0.1)
    monkeypatch.setattr(remote, "get_file", lambda *names: answering.wait(60) and fetch(*names))

    def read(_: int) -> bytes:
        try:
            return store.get(lease.job_id, "card.json").path.read_bytes()
        except StoreUnavailable:
            refused.release()
            return b""

    with ThreadPoolExecutor(files._FETCHES + 2) as threads:
        reads = [threads.submit(read, number) for number in range(files._FETCHES + 2)]
        assert all(refused.acquire(timeout=60) for _ in range(2))
        answering.set()
    assert sorted(one.result() for one in reads)[-files._FETCHES :] == [b"whole"] * files._FETCHES


def test_a_bucket_that_is_away_is_a_named_error(
    sqlite_database: Database, tmp_path: Path, lease: Lease, bucket: Bucket
) -> None:
    away = ArtifactStore(sqlite_database, tmp_path, "s3://no-such-bucket-anywhere/prefix")
    with pytest.raises(StoreUnavailable, match="does not answer"):
        away.check()
    ArtifactStore(sqlite_database, tmp_path, f"s3://{bucket.name}").check()


@pytest.mark.parametrize("url", ["file:///etc", "bucket", "s3://key:secret@host/bucket"])
def test_addresses_that_are_none_or_hold_a_secret_are_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        Settings(artifact_url=url)


def test_keys_of_the_store_may_stand_in_a_file(
    store: ArtifactStore, lease: Lease, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/operations.md names the variable; it is read by the library of the store."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    named = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(named))
    S3FileSystem.clear_instance_cache()
    with pytest.raises(StoreUnavailable):
        put(store, lease, "card.json", b"{}")
    named.write_text("[default]\naws_access_key_id = canary\naws_secret_access_key = canary0secret\n")
    S3FileSystem.clear_instance_cache()
    again = ArtifactStore(store._database, tmp_path / "data", f"s3://{bucket.name}/prefix")
    put(again, lease, "card.json", b"{}")
    assert list(bucket.contents().values()) == [b"{}"]
