"""What the store does on a full disk: nothing is charged without room for it, and nothing is counted for nothing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from datalens_service.errors import InsufficientStorage, StoreUnavailable
from datalens_service.store import charge_log
from datalens_service.store.charge_log import ChargeLog
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.disk import check_writable
from datalens_service.store.ledger.recovery import check_against_log
from disks import SmallDisk

from .books import charge_until_refused, running_job, state_of, verified


@pytest.fixture
def on_disk(disk: SmallDisk, sqlite_template: Path) -> Iterator[Database]:
    """An SQLite database and its ledger log on the small disk."""
    shutil.copy(sqlite_template, disk.folder)
    database = Database(f"sqlite:///{disk.folder / 'datalens.db'}", ChargeLog(disk.folder / "ledger.log"))
    yield database
    database.dispose()


@pytest.mark.parametrize("left", [0, 4096, 8192, 12288, 16384, 24576, 32768])
def test_a_charge_without_room_is_not_counted(on_disk: Database, disk: SmallDisk, left: int) -> None:
    """Wherever the room ends: before the line in the log, within the journal, or at the commit."""
    dataset, lease, account = running_job(on_disk, units=10_000)
    account.charge(0, "votes", 10)
    made = 1
    with disk.full(left):
        # Longer labels than a page: the journal grows with every charge.
        made += charge_until_refused(lambda step: account.charge(step, "x" * 5000, 10), 1)
        for _ in range(5):
            with pytest.raises(StoreUnavailable):
                account.charge(400, "x" * 20_000, 10)
    assert state_of(on_disk, dataset.id).charged_units == 10 * made
    assert len(ChargeLog(disk.folder / "ledger.log").read()) == made, "a line without a charge counts at the next start"
    account.charge(401, "votes", 10)
    assert verified(on_disk, dataset.id).charged[lease.job_id] == 10 * (made + 1)
    assert check_against_log(on_disk) == ()
    assert state_of(on_disk, dataset.id).charged_units == 10 * (made + 1)


def test_a_full_disk_of_the_log_alone_charges_nothing(sqlite_database: Database, disk: SmallDisk) -> None:
    sqlite_database.log = ChargeLog(disk.folder / "ledger.log")
    dataset, _, account = running_job(sqlite_database, units=10_000)
    account.charge(0, "x" * 2**15, 10)
    with disk.full(), pytest.raises(InsufficientStorage, match="free its disk"):
        account.charge(1, "x" * 2**16, 10)
    assert state_of(sqlite_database, dataset.id).charged_units == 10
    assert [line.step for line in sqlite_database.log.read()] == [0]
    account.charge(1, "votes", 10)
    assert check_against_log(sqlite_database) == ()
    assert state_of(sqlite_database, dataset.id).charged_units == 20


def test_a_line_that_cannot_be_synced_is_taken_back(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, _, account = running_job(sqlite_database)

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(charge_log.os, "fsync", full)
        with pytest.raises(InsufficientStorage):
            account.charge(0, "votes", 10)
    assert sqlite_database.log is not None
    assert sqlite_database.log.read() == []
    assert state_of(sqlite_database, dataset.id).charged_units == 0


def test_an_artifact_without_room_leaves_nothing(on_disk: Database, disk: SmallDisk) -> None:
    _, lease, _ = running_job(on_disk)
    artifacts = ArtifactStore(on_disk, disk.folder)
    with disk.full(), pytest.raises(InsufficientStorage, match="DATALENS_DATA_DIR"):
        artifacts.put(lease, "card.json", b"x" * 2**20, releasable=True, media_type="application/json")
    assert artifacts.list_artifacts(lease.job_id) == ()
    assert [path for path in (disk.folder / "artifacts").rglob("*") if path.is_file()] == []
    artifacts.put(lease, "card.json", b"x", releasable=True, media_type="application/json")


def test_a_disk_counts_as_full_before_it_is(disk: SmallDisk) -> None:
    check_writable(disk.folder, "data_dir")
    check_writable(disk.folder / "not" / "yet", "data_dir")
    with disk.full(2**20 if disk.real else -(2**16)), pytest.raises(InsufficientStorage, match="data_dir"):
        check_writable(disk.folder, "data_dir")
    assert [path.name for path in disk.folder.iterdir()] == []
