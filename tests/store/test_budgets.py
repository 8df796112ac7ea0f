import pytest

from datalens_service.base.clock import utc_now
from datalens_service.base.errors import BudgetExceeded, InvalidSpec, LedgerCorrupt, NotFound, StateConflict
from datalens_service.privacy.accounting import limit_units
from datalens_service.proof.hash_chain import GENESIS, Entry, budget_label, follow
from datalens_service.services import budgets
from datalens_service.store.access import access_log
from datalens_service.store.database import Database
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.account_summary import AccountSummary
from datalens_service.store.ledger.recovery import check_against_log

from .backups import back_up
from .books import (
    DELTA,
    EPSILON,
    claimed,
    journal_of,
    new_dataset,
    new_job,
    read_account,
    running_job,
    state_of,
    verified,
)


def raised(database: Database, dataset_id: str, epsilon: float = 2 * EPSILON) -> AccountSummary:
    return budgets.raise_budget(database, dataset_id, epsilon, reason="second study", actor="key_1")


def test_a_raised_account_adds_up_and_has_room(database: Database) -> None:
    dataset = new_dataset(database)
    full = state_of(database, dataset.id).limit_units
    new_job(database, dataset.id, full)
    with pytest.raises(BudgetExceeded):
        new_job(database, dataset.id, 1)
    found = raised(database, dataset.id)
    assert (found.epsilon, found.limit_units) == (2 * EPSILON, limit_units(2 * EPSILON, DELTA))
    assert found == state_of(database, dataset.id)
    assert verified(database, dataset.id).limit == found.limit_units
    new_job(database, dataset.id, found.limit_units - full)
    assert check_against_log(database) == ()
    assert access_log.verify(database, "default").seq == 1


def test_what_is_not_more_is_refused(database: Database) -> None:
    dataset = new_dataset(database)
    before = journal_of(database, dataset.id)
    for epsilon in (EPSILON, EPSILON / 2):
        with pytest.raises(StateConflict):
            raised(database, dataset.id, epsilon)
    with pytest.raises(InvalidSpec):
        raised(database, dataset.id, 1e6)
    with pytest.raises(NotFound):
        raised(database, "ds_of_nobody")
    assert journal_of(database, dataset.id) == before
    assert access_log.list_entries(database, "default")[0] == ()


def test_no_raise_without_its_note(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = new_dataset(database)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(budgets.access_log, "append", fail)
    with pytest.raises(RuntimeError):
        raised(database, dataset.id)
    assert state_of(database, dataset.id).epsilon == EPSILON
    verified(database, dataset.id)


@pytest.mark.parametrize(
    ("label", "ledger_units"),
    [
        (budget_label(2.0, 2e-5), 10),
        (budget_label(1.0, 1e-5), 10),
        (budget_label(0.5, 1e-5), 10),
        (budget_label(2.0, 1e-5), 0),
        ("epsilon=nan delta=1e-05", 10),
        ("epsilon=2.0.0 delta=1e-05", 10),
        ("more", 10),
    ],
)
def test_an_entry_that_raises_nothing_breaks_the_chain(label: str, ledger_units: int) -> None:
    opened = _entry(1, "open", 100, budget_label(1.0, 1e-5), GENESIS)
    with pytest.raises(LedgerCorrupt, match=r"Entry 2 .* does not raise"):
        follow([opened, _entry(2, "raise", ledger_units, label, opened.hash)])


def test_a_raise_counts_from_its_entry_on() -> None:
    opened = _entry(1, "open", 100, budget_label(1.0, 1e-5), GENESIS)
    more = _entry(2, "raise", 50, budget_label(2.0, 1e-5), opened.hash)
    balance = follow([opened, more])
    assert (balance.limit, balance.budget) == (150, budget_label(2.0, 1e-5))


def test_a_backup_from_before_a_raise_is_raised_again(database: Database) -> None:
    """Its charges do not fit into the old limit: frozen, until the owner raises it once more."""
    dataset, _, account = running_job(database, ledger_units=limit_units(EPSILON, DELTA))
    copied = back_up(database)
    account.charge(0, "votes", limit_units(EPSILON, DELTA))
    raised(database, dataset.id)
    more = new_job(database, dataset.id, 1000)
    _spend(database, more.id, 1000)
    copied.restore()
    assert check_against_log(database) == (state_of(database, dataset.id).account_id,)
    assert state_of(database, dataset.id).frozen_reason == ledger.NO_ROOM
    raised(database, dataset.id)
    assert check_against_log(database) == ()
    assert state_of(database, dataset.id).charged_units == limit_units(EPSILON, DELTA) + 1000
    verified(database, dataset.id)


def _spend(database: Database, job_id: str, ledger_units: int) -> None:
    read_account(database, claimed(database, job_id)).charge(0, "votes", ledger_units)


def _entry(seq: int, kind: str, ledger_units: int, label: str, previous: str) -> Entry:
    return Entry.sealed(
        account_id="acc_1",
        seq=seq,
        kind=kind,
        ledger_units=ledger_units,
        label=label,
        at=utc_now(),
        previous_hash=previous,
    )
