"""What the store does on a full disk: nothing is charged without room for it, and nothing is counted for nothing."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from datalens_service.base.errors import InsufficientStorage, LedgerCorrupt, StoreUnavailable
from datalens_service.store import charge_log
from datalens_service.store.charge_log import ChargeLog, LogLine
from datalens_service.store.database import Database
from datalens_service.store.datasets.artifacts import ArtifactStore
from datalens_service.store.disk import check_writable
from datalens_service.store.ledger.recovery import check_against_log
from disks import SmallDisk

from .books import charge_until_refused, running_job, state_of, verified


def line(number: int) -> LogLine:
    return LogLine(
        account_id="acc", dataset_id="ds", job_id="job", step=number, label="votes", ledger_units=5, lease_token=1,
        seq=number, hash=f"{number:064x}",
    )  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> ChargeLog:
    return ChargeLog(tmp_path / "logs" / "ledger.log")


def test_lines_come_back_in_order(log: ChargeLog) -> None:
    assert log.read() == []
    for number in range(5):
        log.restore([line(number)], 0)
    assert log.read() == [line(number) for number in range(5)]
    assert log.path.stat().st_mode & 0o077 == 0, "for its owner only"


def test_what_stands_in_the_place_of_an_account_is_not_taken_for_its_lines(log: ChargeLog) -> None:
    other = replace(line(1), account_id="abc")
    log.restore([line(0), other], 0)
    index = log.index()
    assert log.read_indexed(index, "abc").lines == [other]
    log.path.write_bytes(b"".join(reversed(log.path.read_bytes().splitlines(keepends=True))))
    for account_id in ("acc", "abc"):
        with pytest.raises(LedgerCorrupt, match="not the one"):
            log.read_indexed(index, account_id)


def test_a_line_is_on_the_disk_when_append_returns(log: ChargeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[int, int] = {}

    def sync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced[found.st_ino] = found.st_size

    monkeypatch.setattr(os, "fsync", sync)
    for number in range(3):
        log.restore([line(number)], 0)
        found = log.path.stat()
        assert synced[found.st_ino] == found.st_size
    assert log.path.parent.stat().st_ino in synced


@pytest.mark.parametrize("cut", [1, 10, 100])
@pytest.mark.parametrize("before", [0, 1])
def test_a_line_cut_off_by_a_crash_never_happened(log: ChargeLog, cut: int, before: int) -> None:
    whole = [line(number) for number in range(before)]
    log.restore([*whole, line(1)], 0)
    os.truncate(log.path, log.path.stat().st_size - cut)
    assert log.read() == whole
    log.restore([line(2)], 0)
    assert log.read() == [*whole, line(2)]


@pytest.mark.parametrize("damage", ["not json", '{"account_id": "acc"}', ""])
def test_a_damaged_line_in_the_middle_stops_everything(log: ChargeLog, damage: str) -> None:
    log.restore([line(0)], 0)
    with log.path.open("a") as file:
        file.write(damage + "\n")
    log.restore([line(1)], log.path.stat().st_size)
    with pytest.raises(LedgerCorrupt, match="Line 2"):
        log.read()


def test_a_withdrawn_line_is_not_read_and_the_log_keeps_its_length(log: ChargeLog) -> None:
    """Others may have read it, and remember how long the log was."""
    ends = [log.append(replace(line(number), account_id=str(number)), 0) for number in range(3)]
    middle = log.read()[1]
    log.withdraw(middle, ends[1])
    log.withdraw(middle, ends[2])
    assert [found.seq for found in log.read()] == [0, 2]
    assert log.path.stat().st_size == ends[2]
    assert log.check("1", ends[0]) == ends[2]
    assert log.append(middle, ends[0]) > ends[2]


def test_lines_of_several_processes_do_not_mix(log: ChargeLog) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ChargeLog(log.path).restore([line(number)], 0), range(200)))
    assert sorted(found.seq for found in log.read()) == list(range(200))


def test_every_charge_is_in_the_log_under_its_hash(database: Database) -> None:
    dataset, lease, account = running_job(database)
    for step in range(3):
        account.charge(step, "votes", 10 + step)
    assert database.log is not None
    written = database.log.read()
    assert [(found.job_id, found.step, found.ledger_units) for found in written] == [
        (lease.job_id, 0, 10), (lease.job_id, 1, 11), (lease.job_id, 2, 12)
    ]  # fmt: skip
    assert written[-1].hash == verified(database, dataset.id).head_hash


def test_a_charge_is_in_the_log_before_it_is_committed(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dataset, _, account = running_job(database)
    seen: list[int] = []

    class Witness(ChargeLog):
        def append(self, line: LogLine, checked: int) -> int:
            length = super().append(line, checked)
            seen.append(state_of(database, dataset.id).charged_units)
            return length

    monkeypatch.setattr(database, "log", Witness(tmp_path / "witness.log"))
    account.charge(0, "votes", 10)
    assert seen == [0]
    assert state_of(database, dataset.id).charged_units == 10


def test_a_full_disk_under_the_log_books_nothing(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, _, account = running_job(database)
    monkeypatch.setattr(database, "log", ChargeLog(Path("/dev/full")))
    with pytest.raises(InsufficientStorage, match="free its disk"):
        account.charge(0, "votes", 10)
    assert state_of(database, dataset.id).charged_units == 0
    verified(database, dataset.id)


def test_a_log_that_takes_half_a_line_books_nothing(sqlite_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real disk quota: the file may not grow beyond the line that is there."""
    import resource
    import signal

    dataset, _, account = running_job(sqlite_database)
    account.charge(0, "votes", 10)
    assert sqlite_database.log is not None
    size = sqlite_database.log.path.stat().st_size
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, previous[1]))
    try:
        with pytest.raises(InsufficientStorage):
            account.charge(1, "votes", 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)
        signal.signal(signal.SIGXFSZ, handler)
    assert state_of(sqlite_database, dataset.id).charged_units == 10
    account.charge(1, "votes", 10)
    assert [found.step for found in sqlite_database.log.read()] == [0, 1]


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
    dataset, lease, account = running_job(on_disk, ledger_units=10_000)
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
    dataset, _, account = running_job(sqlite_database, ledger_units=10_000)
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
