"""What a service may do before it has audited all of its accounts: answer, and nothing that the audit could forbid."""

import pytest

from datalens_service.base.errors import BudgetExceeded, LedgerCorrupt, StoreUnavailable
from datalens_service.services import ledger_check
from datalens_service.services.budgets import raise_budget
from datalens_service.services.ledger_check import LedgerCheck
from datalens_service.store.database import Database
from datalens_service.store.ledger.recovery import begin_check, finish_check

from .backups import spend_all_and_restore
from .books import by_hand, images, new_dataset, new_job, running_job, state_of, without_guards


def test_a_restored_budget_cannot_be_reserved_before_the_audit(database: Database) -> None:
    dataset, limit, _ = spend_all_and_restore(database)
    begin_check(database)
    with pytest.raises(BudgetExceeded):
        new_job(database, dataset.id, 1)
    assert state_of(database, dataset.id).charged_units == limit


def test_an_account_that_does_not_add_up_is_frozen_before_it_is_used(database: Database) -> None:
    altered, _, account = running_job(database)
    account.charge(0, "votes", 10)
    raised = new_dataset(database, images(seed=1))
    without_guards(database, "ledger_entries")
    by_hand(database, "UPDATE ledger_entries SET label = 'other' WHERE kind IN ('charge', 'open')")
    begin_check(database)
    with pytest.raises(LedgerCorrupt, match="frozen"):
        new_job(database, altered.id, 1)
    with pytest.raises(LedgerCorrupt, match="frozen"):
        raise_budget(database, raised.id, 20.0, reason="more", actor="local")
    for dataset in (altered, raised):
        assert "altered" in str(state_of(database, dataset.id).frozen_reason)


def test_a_use_audits_its_account_and_the_background_all_others(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database, images(seed=1))
    log = begin_check(database)
    assert set(database.unchecked) == {first.account_id, second.account_id}
    new_job(database, first.id, 1)
    assert set(database.unchecked) == {second.account_id}
    assert finish_check(database, log, stopping=lambda: True) == ()
    assert set(database.unchecked) == {second.account_id}
    assert finish_check(database, log) == ()
    assert database.unchecked == {}


def test_the_background_tries_again_when_the_database_was_away(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_dataset(sqlite_database)
    tries: list[int] = []

    def away_at_first(*arguments: object) -> tuple[str, ...]:
        tries.append(len(sqlite_database.unchecked))
        if len(tries) == 1:
            raise StoreUnavailable("away")
        return finish_check(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ledger_check, "finish_check", away_at_first)
    monkeypatch.setattr(ledger_check, "_RETRY_SECONDS", 0)
    audit = LedgerCheck(sqlite_database)
    audit.start()
    audit._thread.join()
    assert tries == [1, 1]
    assert sqlite_database.unchecked == {}
