"""Restored backups, commits that failed after their log line, and accounts that do not add up."""

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datalens_service.base.errors import InsufficientStorage, LedgerCorrupt
from datalens_service.store.database import Database
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.recovery import begin_check, check_against_log, finish_check

from .backups import back_up, spend_what_the_backup_reserves
from .books import (
    by_hand,
    claimed,
    images,
    journal_of,
    new_dataset,
    new_job,
    read_account,
    running_job,
    state_of,
    verified,
    without_guards,
)

NOISY = np.arange(3, dtype=np.int64)


@pytest.mark.both_databases
def test_a_restored_backup_knows_again_what_was_spent_since(database: Database) -> None:
    dataset, lease, account = running_job(database, ledger_units=1000)
    account.charge(0, "votes", 100)
    backup = back_up(database)
    account.charge(1, "votes", 200)
    account.charge(2, "votes", 300)
    backup.restore()
    assert state_of(database, dataset.id).charged_units == 100

    assert check_against_log(database) == ()
    found = state_of(database, dataset.id)
    assert (found.charged_units, found.reserved_units) == (600, 400)
    assert verified(database, dataset.id).charged[lease.job_id] == 600
    journal = journal_of(database, dataset.id)
    assert [entry.kind for entry in journal][-2:] == ["recovered", "recovered"]
    assert check_against_log(database) == ()
    assert journal_of(database, dataset.id) == journal


def test_spends_of_jobs_that_the_backup_does_not_know_are_recovered(database: Database) -> None:
    dataset = new_dataset(database)
    backup = back_up(database)
    lease = claimed(database, new_job(database, dataset.id, 1000).id)
    read_account(database, lease).charge(0, "votes", 1000)
    backup.restore()
    assert check_against_log(database) == ()
    assert state_of(database, dataset.id).charged_units == 1000
    assert verified(database, dataset.id).charged == {lease.job_id: 1000}


def test_an_account_without_room_for_what_was_spent_is_frozen_until_there_is(database: Database) -> None:
    other = new_dataset(database, images(seed=1))
    dataset, limit, first = spend_what_the_backup_reserves(database)
    assert check_against_log(database) == (state_of(database, dataset.id).account_id,)
    with pytest.raises(LedgerCorrupt, match="frozen"):
        new_job(database, dataset.id, 1)
    held = claimed(database, first.id)
    with pytest.raises(LedgerCorrupt, match="frozen"):
        read_account(database, held).charge(0, "votes", 1)
    new_job(database, other.id, 1)

    leases.finish(database, held, JobState.CANCELLED)
    assert check_against_log(database) == ()
    assert state_of(database, dataset.id).charged_units == limit
    assert state_of(database, dataset.id).frozen_reason is None


def test_a_database_that_is_not_the_one_of_the_log_is_refused(database: Database, tmp_path: Path) -> None:
    _, _, account = running_job(database)
    account.charge(0, "votes", 10)
    empty = Database(f"sqlite:///{tmp_path / 'other.db'}", database.log)
    empty.migrate()
    with pytest.raises(LedgerCorrupt, match="does not know"):
        check_against_log(empty)


def test_a_backup_that_has_forgotten_whose_records_they_were_is_refused(database: Database) -> None:
    """The account is known, but not that it pays for these records: they could get a second budget."""
    new_dataset(database)
    backup = back_up(database)
    joined = new_dataset(database, np.concatenate([images()[:1], images(seed=1)]))
    lease = claimed(database, new_job(database, joined.id, 10).id)
    read_account(database, lease).charge(0, "votes", 10)
    backup.restore()
    with pytest.raises(LedgerCorrupt, match=joined.id):
        check_against_log(database)


@pytest.mark.both_databases
def test_charges_made_during_an_audit_are_not_written_again(database: Database) -> None:
    _, _, account = running_job(database, ledger_units=1000)
    account.charge(0, "votes", 100)
    log = begin_check(database)
    account.charge(1, "votes", 200)
    account.charge(2, "votes", 300)
    finish_check(database, log)
    assert database.log is not None
    assert [line.step for line in database.log.read()] == [0, 1, 2]


def test_two_audits_at_once_write_a_lost_line_once(database: Database, reopen: Callable[[], Database]) -> None:
    _, _, account = running_job(database, ledger_units=1000)
    account.charge(0, "votes", 100)
    assert database.log is not None
    database.log.path.write_bytes(b"")
    other = reopen()
    logs = [begin_check(each) for each in (database, other)]
    for each, log in zip((database, other), logs, strict=True):
        finish_check(each, log)
    assert [line.step for line in database.log.read()] == [0]


def test_an_audit_holds_a_few_bytes_of_a_line(database: Database) -> None:
    _, _, account = running_job(database)
    account.charge(0, "votes", 10)
    assert database.log is not None
    check_against_log(database)
    [line] = database.log.read()
    with database.log.path.open("ab") as file:
        others = (replace(line, account_id=f"other {number % 100}", seq=number) for number in range(30_000))
        file.writelines(other.encoded() for other in others)
    tracemalloc.start()
    check_against_log(database)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30_000 * 30


def test_a_line_withdrawn_during_an_audit_is_not_booked(database: Database) -> None:
    dataset, _, account = running_job(database)
    account.charge(0, "votes", 10)
    assert database.log is not None
    [line] = database.log.read()
    lost = replace(line, step=1, seq=line.seq + 1, hash="0" * 64)
    end = database.log.append(lost, database.log.path.stat().st_size)
    log = begin_check(database)
    database.log.withdraw(lost, end)
    assert finish_check(database, log) == ()
    assert state_of(database, dataset.id).charged_units == 10


@pytest.mark.parametrize("other", [b"", b"x" * 10_000])
def test_a_log_replaced_during_an_audit_freezes_accounts(database: Database, other: bytes) -> None:
    dataset, _, account = running_job(database)
    account.charge(0, "votes", 10)
    assert database.log is not None
    begin_check(database)
    database.log.path.write_bytes(other)
    with pytest.raises(LedgerCorrupt, match="frozen"):
        new_job(database, dataset.id, 1)


@pytest.mark.parametrize("running", [False, True])
def test_lines_that_are_many_times_in_the_log_count_once_after_a_restore(database: Database, running: bool) -> None:
    """Seven times each, those that the backup knows and those that it has forgotten, at a start and at a charge."""
    dataset, _, account = running_job(database, ledger_units=2000)
    account.charge(0, "votes", 100)
    backup = back_up(database)
    account.charge(1, "votes", 200)
    account.charge(2, "votes", 300)
    backup.restore()
    assert database.log is not None
    data = database.log.path.read_bytes()
    database.log.path.write_bytes(data * 7)
    if not running:
        assert check_against_log(database) == ()
    account.charge(3, "votes", 50)
    found = state_of(database, dataset.id)
    assert found.frozen_reason is None
    assert found.charged_units == 650
    assert sum(verified(database, dataset.id).charged.values()) == 650
    assert len(database.log.read()) == 7 * 3 + 1


def test_a_lost_log_is_written_again_and_protects_again(database: Database) -> None:
    dataset, _, account = running_job(database, ledger_units=1000)
    log = database.log
    assert log is not None
    backup = back_up(database)
    account.charge(0, "votes", 10)
    backup.restore()
    check_against_log(database)
    account.charge(1, "votes", 20)
    log.path.unlink()
    assert check_against_log(database) == ()
    assert [line.ledger_units for line in log.read()] == [10, 20]
    assert check_against_log(database) == ()
    assert len(log.read()) == 2
    backup.restore()
    check_against_log(database)
    assert state_of(database, dataset.id).charged_units == 30


def test_an_account_that_was_tampered_with_is_frozen(database: Database) -> None:
    dataset, lease, account = running_job(database)
    account.charge(0, "votes", 10)
    other = new_dataset(database, images(seed=1))
    without_guards(database, "ledger_entries")
    by_hand(database, "UPDATE ledger_entries SET units = 1 WHERE kind = 'charge'")
    assert check_against_log(database) == (state_of(database, dataset.id).account_id,)
    assert "Entry 3" in (state_of(database, dataset.id).frozen_reason or "")
    with pytest.raises(LedgerCorrupt, match="Entry 3"):
        account.charge(1, "votes", 10)
    with pytest.raises(LedgerCorrupt):
        new_job(database, dataset.id, 1)
    # What was paid for before may still be kept, and the job may end.
    account.store(0, NOISY)
    leases.finish(database, lease, JobState.FAILED)
    new_job(database, other.id, 1)


def test_deleted_charges_come_back_from_the_log(database: Database) -> None:
    """Even a chain that was cut and whose totals were lowered consistently gives nothing."""
    dataset, _, account = running_job(database, ledger_units=1000)
    before = journal_of(database, dataset.id)[-1]
    account.charge(0, "votes", 100)
    for table in ("ledger_entries", "accounts", "reservations"):
        without_guards(database, table)
    by_hand(
        database,
        "DELETE FROM ledger_entries WHERE seq = 3",
        "UPDATE accounts SET charged_units = 0, reserved_units = 1000, head_seq = 2, head_hash = :hash",
        "UPDATE reservations SET charged_units = 0, reserved_units = 1000",
        hash=before.hash,
    )
    assert verified(database, dataset.id).total_charged == 0
    assert check_against_log(database) == ()
    assert state_of(database, dataset.id).charged_units == 100


def test_a_full_disk_under_the_database_books_nothing(sqlite_database: Database) -> None:
    dataset, _, account = running_job(sqlite_database, ledger_units=10**6)
    account.charge(0, "votes", 10)
    with sqlite_database._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")

    def charge_until_it_fails() -> None:
        for step in range(1, 1000):
            account.charge(step, "x" * 1000, 10)

    with pytest.raises(InsufficientStorage, match="disk of the database"):
        charge_until_it_fails()
    sqlite_database.dispose()
    found = state_of(sqlite_database, dataset.id)
    charges = [entry for entry in journal_of(sqlite_database, dataset.id) if entry.kind == "charge"]
    assert found.charged_units == 10 * len(charges)
    verified(sqlite_database, dataset.id)
    # The disk filled up before the log line was written: not even an over-count.
    assert check_against_log(sqlite_database) == ()
    assert state_of(sqlite_database, dataset.id) == found
