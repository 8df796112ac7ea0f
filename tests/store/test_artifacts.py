import hashlib
from pathlib import Path

import pytest

from datalens_service.base.errors import InvalidInput, NotFound, StaleLease, StoreUnavailable
from datalens_service.store.database import Database
from datalens_service.store.datasets import artifacts
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.jobs import jobs
from datalens_service.store.jobs.leases import Lease

from .books import claimed, images, later, new_dataset, new_job, running_job


@pytest.fixture
def store(database: Database, tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(database, tmp_path / "data")


@pytest.fixture
def lease(database: Database) -> Lease:
    return running_job(database)[1]


def put(store: ArtifactStore, lease: Lease, name: str, content: bytes, releasable: bool = True) -> Path:
    return store.put(lease, name, content, releasable=releasable, media_type="text/plain").path


def test_a_file_comes_back_with_its_digest(store: ArtifactStore, lease: Lease, tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"{}")
    for content in (b"another", b"{}", tmp_path / "source"):
        store.put(lease, "card.json", content, releasable=True, media_type="text/plain")
    [found] = store.list_artifacts(lease.job_id)
    assert found == store.get(lease.job_id, "card.json")
    assert found.path.read_bytes() == b"{}"
    assert found.path.stat().st_mode & 0o077 == 0, "for its owner only"
    assert (found.sha256, found.size) == (hashlib.sha256(b"{}").hexdigest(), 2)
    assert found.media_type == "text/plain"
    assert found.path.is_relative_to(tmp_path / "data" / "artifacts" / lease.job_id)
    assert found.path.name == "card.json"


def test_a_private_file_is_never_releasable(store: ArtifactStore, lease: Lease) -> None:
    put(store, lease, "teachers.safetensors", b"secret", releasable=False)
    assert store.get(lease.job_id, "teachers.safetensors").path.read_bytes() == b"secret"
    with pytest.raises(NotFound):
        store.releasable(lease.job_id, "teachers.safetensors")
    put(store, lease, "card.json", b"{}")
    assert store.releasable(lease.job_id, "card.json").size == 2


def test_a_file_that_turns_private_is_no_longer_releasable(store: ArtifactStore, lease: Lease) -> None:
    put(store, lease, "report.json", b"same")
    put(store, lease, "report.json", b"same", releasable=False)
    with pytest.raises(NotFound):
        store.releasable(lease.job_id, "report.json")


def test_files_are_listed_by_name(store: ArtifactStore, lease: Lease) -> None:
    for name in ("b", "a", "c"):
        put(store, lease, name, name.encode())
    assert [found.name for found in store.list_artifacts(lease.job_id)] == ["a", "b", "c"]
    assert store.list_artifacts("job_of_nobody") == ()
    for operation in (store.get, store.releasable):
        with pytest.raises(NotFound):
            operation(lease.job_id, "nothing")


def test_a_worker_that_comes_too_late_shows_nothing(store: ArtifactStore, database: Database, lease: Lease) -> None:
    put(store, lease, "card.json", b"honest")
    claimed(database, lease.job_id, now=later())
    with pytest.raises(StaleLease):
        put(store, lease, "card.json", b"zombie")
    assert store.get(lease.job_id, "card.json").path.read_bytes() == b"honest"


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "/etc/passwd", "a\0", "ä", "x" * 129, "a\n"])
def test_a_name_is_never_a_path(store: ArtifactStore, lease: Lease, name: str) -> None:
    with pytest.raises(InvalidInput):
        put(store, lease, name, b"")


def test_a_disk_that_takes_nothing_is_a_named_error(store: ArtifactStore, lease: Lease, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "artifacts").write_text("not a folder")
    with pytest.raises(StoreUnavailable):
        put(store, lease, "card.json", b"{}")


def test_a_failed_copy_leaves_no_private_rest(store: ArtifactStore, lease: Lease, tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        store.put(lease, "x", tmp_path / "missing", releasable=False, media_type="text/plain")
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == []


def delete_private(store: ArtifactStore, database: Database, lease: Lease) -> None:
    """What the deletion of its data set does with the files of a job."""
    with database.transaction() as session:
        artifacts.forget_private(session, jobs.get(database, lease.job_id).dataset_id)
    store.remove_files(lease.job_id)


def test_private_files_of_a_data_set_can_be_removed_and_all_others_stay(
    store: ArtifactStore, database: Database, lease: Lease, tmp_path: Path
) -> None:
    other = claimed(database, new_job(database, new_dataset(database, images(seed=1)).id, 10).id)
    put(store, other, "teachers", b"of another data set", releasable=False)
    put(store, lease, "card.json", b"public")
    put(store, lease, "teachers", b"old secret", releasable=False)
    put(store, lease, "teachers", b"secret", releasable=False)
    (tmp_path / "data" / "artifacts" / lease.job_id / ".tmp-x").write_bytes(b"unfinished secret")
    for _ in range(2):
        delete_private(store, database, lease)
        assert [found.name for found in store.list_artifacts(lease.job_id)] == ["card.json"]
        contents = {path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
        assert contents == {b"public", b"of another data set"}
    # The name of a file's folder is a digest of its content.
    assert len(list((tmp_path / "data" / "artifacts" / lease.job_id).iterdir())) == 1


def test_private_files_that_cannot_be_removed_are_a_named_error(
    store: ArtifactStore, database: Database, lease: Lease, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, lease, "teachers", b"secret", releasable=False)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StoreUnavailable, match="could not be removed"):
        delete_private(store, database, lease)
