"""A table that somebody changes while a job charges: what was drawn is kept, and paid once."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from datalens_service.base.errors import StoreUnavailable
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store import database as store
from datalens_service.store.database import Database
from datalens_service.store.ledger import account as account_module
from datalens_service.store.ledger import aggregates

from .books import journal_of, read_account, running_job, verified

TABLES = ("accounts", "aggregates", "jobs", "ledger_entries", "reservations")


@pytest.mark.postgres
@pytest.mark.parametrize("table", TABLES)
def test_no_step_is_paid_twice_for_a_table_that_is_locked_between_its_charge_and_its_sum(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    monkeypatch.setattr(store, "_POSTGRESQL_OPTIONS", "-c lock_timeout=100ms")
    dataset, lease, _ = running_job(postgresql_database)
    worker, other = Database(postgresql_database.url, postgresql_database.log), Database(postgresql_database.url)
    refused = count_failures(monkeypatch)
    account, noisy = read_account(worker, lease), np.arange(8)
    account.charge(0, "counts", 1)
    with other.transaction() as changing:
        changing.execute(text(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
        keeping = threading.Thread(target=account.store, args=(0, noisy))
        keeping.start()
        # It has failed before, and would have ended the process.
        while len(refused) < 2:
            assert keeping.is_alive()
            time.sleep(0.01)
    keeping.join(60)
    stored = account.replay(0)
    assert stored is not None
    np.testing.assert_array_equal(stored, noisy)
    assert charges_of(postgresql_database, dataset.id) == {0: 1}
    assert verified(postgresql_database, dataset.id).total_charged == 1
    worker.dispose()
    other.dispose()


def count_failures(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each pause that a write made because it had failed."""
    failures: list[None] = []

    def pause(seconds: float) -> None:
        failures.append(None)
        threading.Event().wait(seconds)

    monkeypatch.setattr(account_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=pause))
    return failures


def charges_of(database: Database, dataset_id: str) -> dict[int | None, int]:
    charges = (entry for entry in journal_of(database, dataset_id) if entry.kind == EntryKind.CHARGE)
    return dict(Counter(entry.step for entry in charges))


def test_a_commit_whose_answer_was_lost_is_recognised(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, _, account = running_job(sqlite_database)
    account.charge(0, "counts", 1)
    lost = iter((True, False))
    transaction = Database.transaction

    @contextmanager
    def losing_answers(database: Database) -> Iterator[Session]:
        with transaction(database) as session:
            yield session
        if next(lost):
            raise StoreUnavailable("The connection to the database was lost.")

    monkeypatch.setattr(Database, "transaction", losing_answers)
    monkeypatch.setattr(account_module, "_PAUSE_SECONDS", 0)
    account.store(0, np.arange(8))
    assert charges_of(sqlite_database, dataset.id) == {0: 1}


def test_a_database_that_takes_nothing_is_given_up_in_the_end(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, account = running_job(sqlite_database)
    account.charge(0, "counts", 1)
    monkeypatch.setattr(account_module, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(account_module, "_STORE_SECONDS", 0.1)
    monkeypatch.setattr(aggregates, "store_aggregate", unavailable)
    with pytest.raises(StoreUnavailable):
        account.store(0, np.arange(8))


def unavailable(*_: object) -> None:
    raise StoreUnavailable("The database is locked.")
