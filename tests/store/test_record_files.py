"""Private records in an object store: a real server speaking S3, in this process."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from datalens_service.base.clock import utc_now
from datalens_service.base.errors import FileDamaged, InvalidInput, StoreUnavailable
from datalens_service.base.settings import Settings
from datalens_service.store.datasets.record_files import RecordStore

from .test_files import Bucket, bucket, s3

__all__ = ["bucket", "s3"]

CONTENT = {"train_images.npy": b"canary of a private record" * 50_000, "schema.json": b"{}"}


@pytest.fixture
def settings(tmp_path: Path, bucket: Bucket) -> Settings:
    key = tmp_path / "records.key"
    key.write_bytes(os.urandom(32))
    return Settings(data_dir=tmp_path / "data", records_url=f"s3://{bucket.name}/private", records_key_file=key)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data" / "datasets" / "ds_1"
    made.mkdir(parents=True)
    for name, content in CONTENT.items():
        (made / name).write_bytes(content)
    return made


def test_records_go_encrypted_and_come_back_on_another_machine(
    settings: Settings, bucket: Bucket, folder: Path, tmp_path: Path
) -> None:
    path = RecordStore(settings).keep(folder)
    assert path == "sealed:ds_1"
    assert set(bucket.contents()) == {f"private/ds_1/{name}" for name in CONTENT}
    assert not any(b"canary" in content for content in bucket.contents().values())
    fetched = RecordStore(settings).fetch(path, tmp_path / "elsewhere" / "records")
    assert {each.name: each.read_bytes() for each in fetched.iterdir()} == CONTENT
    assert fetched.stat().st_mode & 0o077 == 0
    # A folder that an attempt before left half filled is made anew.
    (fetched / "more").touch()
    again = RecordStore(settings).fetch(path, fetched)
    assert {each.name for each in again.iterdir()} == set(CONTENT)


def test_records_of_before_stay_where_they_are(settings: Settings, folder: Path, tmp_path: Path) -> None:
    assert RecordStore(settings).fetch(str(folder), tmp_path / "unused") == folder
    plain = RecordStore(Settings(data_dir=settings.data_dir))
    assert plain.keep(folder) == str(folder)
    plain.remove(str(folder))
    assert not folder.exists()


def test_removed_records_are_gone(settings: Settings, bucket: Bucket, folder: Path, tmp_path: Path) -> None:
    store = RecordStore(settings)
    path = store.keep(folder)
    for _ in range(2):
        store.remove(path)
        assert bucket.contents() == {}
    with pytest.raises(FileDamaged):
        store.fetch(path, tmp_path / "records")


def test_exchanged_objects_are_refused(settings: Settings, bucket: Bucket, folder: Path, tmp_path: Path) -> None:
    path = RecordStore(settings).keep(folder)
    contents = bucket.contents()
    bucket.replace("private/ds_1/schema.json", contents["private/ds_1/train_images.npy"])
    with pytest.raises(FileDamaged, match="was altered"):
        RecordStore(settings).fetch(path, tmp_path / "records")


def test_leftovers_are_removed_once_they_are_old(settings: Settings, bucket: Bucket, folder: Path) -> None:
    store, nobody = RecordStore(settings), lambda _: False
    store.keep(folder)
    store.remove_unregistered(nobody, utc_now())
    assert len(bucket.contents()) == 2
    later = utc_now() + timedelta(days=2)
    store.remove_unregistered(lambda name: name == "ds_1", later)
    assert len(bucket.contents()) == 2
    store.remove_unregistered(nobody, later)
    assert bucket.contents() == {}


def test_without_the_key_nothing_is_read(settings: Settings, folder: Path, tmp_path: Path) -> None:
    path = RecordStore(settings).keep(folder)
    with pytest.raises(StoreUnavailable, match="DATALENS_RECORDS_URL"):
        RecordStore(Settings(data_dir=settings.data_dir)).fetch(path, tmp_path / "records")
    other = tmp_path / "other.key"
    other.write_bytes(os.urandom(32))
    with pytest.raises(FileDamaged, match="the key is wrong"):
        RecordStore(settings.model_copy(update={"records_key_file": other})).fetch(path, tmp_path / "records")


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_key_has_32_bytes(settings: Settings, content: bytes) -> None:
    assert settings.records_key_file is not None
    settings.records_key_file.write_bytes(content)
    with pytest.raises(InvalidInput, match="32 bytes"):
        RecordStore(settings)


def test_an_object_store_needs_a_key() -> None:
    with pytest.raises(ValidationError, match="go together"):
        Settings(records_url="s3://bucket/private")


def test_an_object_store_that_does_not_answer_takes_nothing(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = settings.model_copy(update={"records_url": "s3://no-such-bucket/private"})
    with pytest.raises(StoreUnavailable, match="does not answer"):
        RecordStore(elsewhere).keep(folder)
    assert folder.exists()
