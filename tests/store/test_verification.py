"""Somebody with the database's password: guards dropped, rows changed. The verifier names the first bad one."""

import numpy as np
import pytest

from datalens_service.base.errors import LedgerCorrupt, NotFound
from datalens_service.store.database import Database
from datalens_service.store.datasets.datasets import StoredDataset
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.account import JobAccount

from .books import by_hand, journal_of, new_job, running_job, verified, without_guards

NOISY = np.arange(6, dtype=np.int64)


@pytest.fixture
def dataset(database: Database) -> StoredDataset:
    """Seven entries: open, reserve, three charges, settle, and the reservation of a second job; guards dropped."""
    found, lease, account = running_job(database, ledger_units=1000)
    for step in range(3):
        account.charge(step, "votes", 100)
        account.store(step, NOISY)
    leases.finish(database, lease, JobState.SUCCEEDED)
    new_job(database, found.id, 50)
    for table in ("ledger_entries", "accounts", "reservations", "aggregates"):
        without_guards(database, table)
    return found


def complaint(database: Database, dataset: StoredDataset) -> LedgerCorrupt:
    with pytest.raises(LedgerCorrupt) as error:
        verified(database, dataset.id)
    return error.value


def test_an_honest_account_is_in_order(database: Database, dataset: StoredDataset) -> None:
    balance = verified(database, dataset.id)
    assert (balance.total_charged, balance.total_reserved, balance.head_seq) == (300, 50, 7)


@pytest.mark.parametrize(
    "change",
    ["units = 1", "hash = 'x'", "kind = 'join'"],
)
def test_an_altered_entry_is_named(database: Database, dataset: StoredDataset, change: str) -> None:
    by_hand(database, f"UPDATE ledger_entries SET {change} WHERE seq = 4")  # noqa: S608
    assert complaint(database, dataset).extra["entry"] == 4


def test_a_deleted_last_entry_is_named(database: Database, dataset: StoredDataset) -> None:
    by_hand(database, "DELETE FROM ledger_entries WHERE seq = 7")
    assert complaint(database, dataset).extra["entry"] == 7


@pytest.mark.parametrize(
    ("change", "total"),
    [
        ("charged_units = charged_units - 100", "charged"),
        ("reserved_units = 0", "reserved"),
        ("limit_units = limit_units + 1000", "limit"),
    ],
)
def test_a_total_that_the_journal_does_not_add_up_to_is_named(
    database: Database, dataset: StoredDataset, change: str, total: str
) -> None:
    by_hand(database, f"UPDATE accounts SET {change}")  # noqa: S608
    assert complaint(database, dataset).extra["total"] == total


@pytest.mark.parametrize("change", ["delta = 1e-9", "epsilon = 9"])
def test_the_parameters_of_the_guarantee_are_part_of_the_chain(
    database: Database, dataset: StoredDataset, change: str
) -> None:
    by_hand(database, f"UPDATE accounts SET {change}")  # noqa: S608
    assert complaint(database, dataset).extra["entry"] == 1


def test_a_job_that_hides_its_charges_is_named(database: Database, dataset: StoredDataset) -> None:
    by_hand(database, "UPDATE reservations SET charged_units = 0 WHERE charged_units > 0")
    assert complaint(database, dataset).extra["job_id"].startswith("job_")


def test_a_draw_without_a_charge_is_named(database: Database, dataset: StoredDataset) -> None:
    by_hand(
        database,
        "INSERT INTO aggregates SELECT job_id, 17, lease_token, encoding, payload, sha256, created_at "
        "FROM aggregates WHERE step = 0",
    )
    assert complaint(database, dataset).extra["step"] == 17


@pytest.mark.parametrize("column", ["payload", "sha256"])
def test_an_altered_sum_is_not_replayed(database: Database, dataset: StoredDataset, column: str) -> None:
    empty = {"payload": b"\x93NUMPY", "sha256": "0" * 64}[column]
    by_hand(database, f"UPDATE aggregates SET {column} = :empty WHERE step = 1", empty=empty)  # noqa: S608
    job_id = journal_of(database, dataset.id)[1].job_id
    assert job_id is not None
    account = JobAccount(database, job_id, 1)
    with pytest.raises(LedgerCorrupt, match="step 1"):
        account.replay(1)
    assert account.replay(2) is not None


def test_an_unknown_data_set_has_no_journal(database: Database) -> None:
    with pytest.raises(NotFound):
        verified(database, "ds_of_nobody")
