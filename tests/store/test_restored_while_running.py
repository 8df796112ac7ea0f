"""A database that is put back to an older state while the service runs, and a ledger log that is cut or replaced."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import make_url

from datalens_service.base.errors import BudgetExceeded, LedgerCorrupt, StaleLease
from datalens_service.store import charge_log
from datalens_service.store.charge_log import ChargeLog, LogLine
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases, measurements
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.recovery import check_against_log

from .backups import back_up, spend_all_and_restore, spend_what_the_backup_reserves
from .books import (
    EPSILON,
    by_hand,
    charge_until_refused,
    claimed,
    images,
    journal_of,
    later,
    new_dataset,
    new_job,
    read_account,
    running_job,
    state_of,
    verified,
    without_guards,
)


def log_of(database: Database) -> ChargeLog:
    assert database.log is not None
    return database.log


def cut_last_line(log: ChargeLog) -> None:
    os.truncate(log.path, log.path.stat().st_size - len(log.read()[-1].encoded()))


def test_a_running_job_spends_no_budget_twice(database: Database) -> None:
    dataset = new_dataset(database)
    limit = state_of(database, dataset.id).limit_units
    account = read_account(database, claimed(database, new_job(database, dataset.id, limit).id))
    backup = back_up(database)
    share = limit // 10
    for step in range(9):
        account.charge(step, "votes", share)
    backup.restore()
    assert state_of(database, dataset.id).charged_units == 0

    drawn = 9 + charge_until_refused(lambda step: account.charge(step, "votes", share), 9)
    assert drawn * share <= limit
    assert verified(database, dataset.id).total_charged >= drawn * share


def test_a_new_job_finds_what_is_left(database: Database) -> None:
    """Nothing is charged on the old connections; the submission is the first to look at the log."""
    dataset, limit, lease = spend_all_and_restore(database)
    with pytest.raises(BudgetExceeded) as refused:
        new_job(database, dataset.id, limit)
    assert refused.value.extra["epsilon_spent"] >= refused.value.extra["epsilon_limit"]
    assert state_of(database, dataset.id).charged_units == limit
    assert verified(database, dataset.id).charged == {lease.job_id: limit}


def test_a_measurement_finds_what_is_left(database: Database) -> None:
    _, held, _ = running_job(database)
    aside = new_dataset(database, images(seed=1))
    limit = state_of(database, aside.id).limit_units
    backup = back_up(database)
    read_account(database, claimed(database, new_job(database, aside.id, limit).id)).charge(0, "votes", limit)
    backup.restore()
    with pytest.raises(BudgetExceeded):
        measurements.begin(database, jobs.get(database, held.job_id), aside.id, 1, held)


def test_charges_without_room_freeze_the_account_at_once(database: Database) -> None:
    dataset, _, first = spend_what_the_backup_reserves(database)
    account = read_account(database, claimed(database, first.id))
    with pytest.raises(LedgerCorrupt, match="frozen"):
        account.charge(0, "votes", 1)
    with pytest.raises(LedgerCorrupt, match="frozen"):
        new_job(database, dataset.id, 1)
    assert check_against_log(database) == (state_of(database, dataset.id).account_id,)


def test_a_worker_from_before_the_restoration_is_refused(database: Database) -> None:
    _, lease, _ = running_job(database)
    backup = back_up(database)
    leases.give_back(database, lease)
    later_lease = claimed(database, lease.job_id)
    read_account(database, later_lease).charge(0, "votes", 10)
    backup.restore()
    for stale in (lease, later_lease):
        with pytest.raises(StaleLease):
            read_account(database, stale).charge(1, "votes", 10)
    assert claimed(database, lease.job_id, now=later()).token > later_lease.token
    with pytest.raises(StaleLease):
        read_account(database, later_lease).charge(1, "votes", 10)


def test_two_databases_that_share_a_log_spend_one_budget(sqlite_database: Database, tmp_path: Path) -> None:
    """A file that was moved away stays open in processes that had it open; the copy in its place is another."""
    dataset, lease, account = running_job(sqlite_database, ledger_units=100)
    path = tmp_path / "copy.db"
    original = str(make_url(sqlite_database.url).database)
    with closing(sqlite3.connect(original)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)
    copy = Database(f"sqlite:///{path}", sqlite_database.log)
    other = read_account(copy, lease)
    drawn = 0
    for step in range(20):
        for one in (account, other):
            with suppress(BudgetExceeded):
                one.charge(step, "votes", 10)
                drawn += 10
    assert drawn <= 100
    assert max(state_of(each, dataset.id).charged_units for each in (sqlite_database, copy)) >= drawn
    copy.dispose()


def test_a_failed_commit_counts_at_the_next_charge(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, lease, account = running_job(database, ledger_units=1000)

    class DiesAfterTheLine(ChargeLog):
        def append(self, line: LogLine, checked: int) -> int:
            super().append(line, checked)
            raise RuntimeError("power cut")

    with monkeypatch.context() as patched:
        patched.setattr(database, "log", DiesAfterTheLine(log_of(database).path))
        with pytest.raises(RuntimeError):
            account.charge(0, "votes", 10)
    account.charge(0, "votes", 10)
    assert [entry.kind for entry in journal_of(database, dataset.id)][-2:] == ["recovered", "charge"]
    assert verified(database, dataset.id).charged[lease.job_id] == 20


def test_records_of_a_forgotten_data_set_get_no_second_budget(database: Database) -> None:
    first = new_dataset(database)
    backup = back_up(database)
    forgotten = new_dataset(database, images(seed=1))
    limit = state_of(database, forgotten.id).limit_units
    read_account(database, claimed(database, new_job(database, forgotten.id, limit).id)).charge(0, "votes", limit)
    backup.restore()
    with pytest.raises(LedgerCorrupt, match=forgotten.id):
        new_dataset(database, images(seed=1))
    # What the log does not contradict goes on.
    new_job(database, first.id, 1)


def test_records_that_joined_after_the_backup_freeze_their_account(database: Database) -> None:
    dataset, lease, account = running_job(database)
    backup = back_up(database)
    joined = new_dataset(database, np.concatenate([images()[:1], images(seed=1)]))
    read_account(database, claimed(database, new_job(database, joined.id, 10).id)).charge(0, "votes", 10)
    backup.restore()
    with pytest.raises(LedgerCorrupt, match="does not know"):
        account.charge(0, "votes", 10)
    assert state_of(database, dataset.id).frozen_reason is not None
    leases.finish(database, lease, JobState.FAILED)


@pytest.mark.parametrize("damage", ["shorter", "gone", "other"])
def test_a_log_that_was_cut_or_replaced_is_noticed(database: Database, damage: str) -> None:
    dataset, _, account = running_job(database)
    account.charge(0, "votes", 10)
    log = log_of(database)
    if damage == "shorter":
        cut_last_line(log)
    elif damage == "gone":
        log.path.unlink()
    else:
        log.path.write_bytes(b"x" * 10_000)
    with pytest.raises(LedgerCorrupt, match="ledger log"):
        account.charge(1, "votes", 10)
    with pytest.raises(LedgerCorrupt, match="frozen"):
        new_job(database, dataset.id, 1)
    assert state_of(database, dataset.id).charged_units == 10
    assert state_of(database, dataset.id).remaining_units == 0


def test_a_charge_reads_only_what_the_log_has_gained(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, account = running_job(database)
    read: list[int] = []
    parse = charge_log._parse

    def counted(number: str, raw: bytes) -> LogLine:
        read.append(len(raw))
        return parse(number, raw)

    for step in range(20):
        account.charge(step, "votes", 1)
    monkeypatch.setattr(charge_log, "_parse", counted)
    for step in range(20, 40):
        account.charge(step, "votes", 1)
    assert read == []


def test_a_database_without_a_log_charges_as_before(database: Database) -> None:
    database.log = None
    dataset, _, account = running_job(database)
    backup = back_up(database)
    account.charge(0, "votes", 10)
    backup.restore()
    assert check_against_log(database) == ()
    account.charge(0, "votes", 10)
    assert state_of(database, dataset.id).charged_units == 10


def test_a_frozen_account_states_what_the_log_knows(database: Database) -> None:
    dataset, limit, first = spend_what_the_backup_reserves(database)
    check_against_log(database)

    frozen = state_of(database, dataset.id)
    assert frozen.frozen_reason is not None
    assert frozen.charged_units == 0
    assert (frozen.figures().epsilon_spent, frozen.figures().epsilon_remaining) == (EPSILON, 0.0)

    jobs.request_cancel(database, first.id)
    assert check_against_log(database) == ()
    mended = state_of(database, dataset.id)
    assert (mended.charged_units, mended.unbooked_units, mended.epsilon_spent) == (limit, 0, EPSILON)


def test_an_account_whose_total_was_lowered_states_what_the_log_knows(database: Database) -> None:
    dataset, _, account = running_job(database)
    account.charge(0, "votes", 300)
    without_guards(database, "accounts")
    by_hand(database, "UPDATE accounts SET charged_units = 1, reserved_units = 999")
    check_against_log(database)
    assert (state_of(database, dataset.id).spent_units, state_of(database, dataset.id).remaining_units) == (300, 0)
