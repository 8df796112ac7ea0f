from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datalens_service.base.errors import BudgetExceeded, InvalidInput, InvalidSpec, StaleLease, StateConflict
from datalens_service.privacy import accounting
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.ledger.account_summary import AccountSummary

from .books import (
    DELTA,
    EPSILON,
    claimed,
    journal_of,
    later,
    new_dataset,
    new_job,
    read_account,
    running_job,
    state_of,
)

NOISY = np.array([[3, -5], [2**40, -(2**62)]], dtype=np.int64)


def test_a_new_account_holds_exactly_its_epsilon(database: Database) -> None:
    found = state_of(database, new_dataset(database).id)
    assert found.limit_units == found.remaining_units == accounting.limit_units(EPSILON, DELTA)
    assert (found.epsilon_spent, found.epsilon_reserved, found.epsilon_remaining) == (0.0, 0.0, EPSILON)


def test_entries_tell_the_minute_and_nothing_finer(database: Database) -> None:
    """The journal is handed out, and the time between two charges is the time of a step on private records."""
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    dataset, _, account = running_job(database)
    account.charge(0, "votes", 10)
    entries = journal_of(database, dataset.id)
    assert [entry.kind for entry in entries] == ["open", "reserve", "charge"]
    assert all(before <= entry.at <= datetime.now(UTC) for entry in entries)
    assert {(entry.at.second, entry.at.microsecond) for entry in entries} == {(0, 0)}


@pytest.mark.both_databases
def test_the_whole_budget_can_be_reserved_and_not_one_unit_more(database: Database) -> None:
    dataset = new_dataset(database)
    before = state_of(database, dataset.id)
    limit = before.limit_units
    with pytest.raises(BudgetExceeded):
        new_job(database, dataset.id, limit + 1)
    assert state_of(database, dataset.id) == before
    assert jobs.list_jobs(database).items == ()
    new_job(database, dataset.id, limit)
    with pytest.raises(BudgetExceeded):
        new_job(database, dataset.id, 1)
    assert state_of(database, dataset.id).remaining_units == 0


def test_a_refusal_says_what_remains_as_epsilon(database: Database) -> None:
    dataset = new_dataset(database)
    new_job(database, dataset.id, accounting.limit_units(0.4, DELTA))
    with pytest.raises(BudgetExceeded) as error:
        new_job(database, dataset.id, accounting.limit_units(0.95, DELTA))
    # μ² adds up, ε does not: more than 1 - 0.4 remains.
    assert error.value.extra == {
        "epsilon_limit": 1.0,
        "epsilon_spent": 0.0,
        "epsilon_reserved": 0.4,
        "epsilon_requested": 0.95,
        "epsilon_remaining": 0.8927,
        "delta": DELTA,
    }


@given(st.integers(0, 10**16), st.floats(1e-9, 1e-3))
@settings(max_examples=100, deadline=None)
def test_spent_is_rounded_up_and_remaining_is_rounded_down(ledger_units: int, delta: float) -> None:
    account = AccountSummary("a", 30.0, delta, ledger_units, 0, 0, 1, "", None)
    spent = account.convert_to_epsilon(ledger_units)
    assert (
        accounting.limit_units(spent, delta) >= ledger_units
        if spent > 0
        else accounting.epsilon_of_ledger_units(ledger_units, delta) == 0
    )
    shown = account.epsilon_remaining
    assert shown == 0 or accounting.limit_units(shown, delta) <= ledger_units
    assert accounting.limit_units(shown + 2e-4, delta) > ledger_units


def test_two_jobs_of_epsilon_one_spend_1_4652_not_2(database: Database) -> None:
    dataset = new_dataset(database, epsilon=2.0)
    ledger_units = accounting.limit_units(1.0, DELTA)
    for _ in range(2):
        lease = claimed(database, new_job(database, dataset.id, ledger_units).id)
        read_account(database, lease).charge(0, "moments.means", ledger_units)
        leases.finish(database, lease, JobState.SUCCEEDED)
    assert state_of(database, dataset.id).epsilon_spent == 1.4652


@pytest.mark.both_databases
def test_a_charge_moves_units_from_reserved_to_charged(database: Database) -> None:
    dataset, _, account = running_job(database, ledger_units=1000)
    account.charge(0, "votes", 300)
    found = state_of(database, dataset.id)
    assert (found.reserved_units, found.charged_units) == (700, 300)
    assert found.remaining_units == found.limit_units - 1000


def test_a_charge_beyond_the_reservation_books_nothing(database: Database) -> None:
    dataset, _, account = running_job(database, ledger_units=1000)
    account.charge(0, "votes", 1000)
    before = journal_of(database, dataset.id)
    with pytest.raises(BudgetExceeded):
        account.charge(1, "votes", 1)
    assert journal_of(database, dataset.id) == before


def test_a_stored_step_is_replayed_and_never_charged_again(database: Database) -> None:
    dataset, lease, account = running_job(database, ledger_units=1000)
    assert account.replay(0) is None
    account.charge(0, "votes", 100)
    account.store(0, NOISY)
    second = read_account(database, claimed(database, lease.job_id, now=later()))
    with pytest.raises(StateConflict, match="stored already"):
        second.charge(0, "votes", 100)
    replayed = second.replay(0)
    assert replayed is not None
    np.testing.assert_array_equal(replayed, NOISY)
    assert replayed.dtype == np.int64
    assert state_of(database, dataset.id).charged_units == 100


@pytest.mark.parametrize(("step", "ledger_units"), [(0, 0), (0, -1), (0, -(10**12)), (-1, 1), (0, 1.5), (0.5, 1)])
def test_a_charge_that_would_refund_or_counts_no_whole_numbers_is_refused(
    database: Database, step: Any, ledger_units: Any
) -> None:
    dataset, _, account = running_job(database)
    before = journal_of(database, dataset.id)
    with pytest.raises((InvalidInput, TypeError)):
        account.charge(step, "votes", ledger_units)
    if step == 0:
        with pytest.raises((InvalidInput, TypeError)):
            new_job(database, dataset.id, ledger_units)
    assert journal_of(database, dataset.id) == before


def test_a_job_that_nobody_claimed_cannot_charge(database: Database) -> None:
    job = new_job(database, new_dataset(database).id, 1000)
    with pytest.raises(StaleLease):
        JobAccount(database, job.id, 0).charge(0, "votes", 1)


def test_settling_twice_returns_nothing_the_second_time(database: Database) -> None:
    dataset, lease, _ = running_job(database, ledger_units=1000)
    new_job(database, dataset.id, 50)
    for expected in (1000, 0):
        with database.transaction() as session:
            assert ledger.settle(session, lease.job_id) == expected
    assert state_of(database, dataset.id).reserved_units == 50
    assert [entry.kind for entry in journal_of(database, dataset.id)].count("settle") == 1


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.SUCCEEDED])
def test_no_way_for_a_job_to_end_takes_a_charge_back(database: Database, state: JobState) -> None:
    dataset, lease, account = running_job(database, ledger_units=1000)
    account.charge(0, "votes", 300)
    leases.finish(database, lease, state)
    found = state_of(database, dataset.id)
    assert (found.reserved_units, found.charged_units) == (0, 300)


def test_a_sum_that_was_not_charged_by_this_worker_is_not_kept(database: Database) -> None:
    _, lease, account = running_job(database)
    with pytest.raises(StateConflict, match="not charged"):
        account.store(0, NOISY)
    account.charge(0, "votes", 1)
    second = read_account(database, claimed(database, lease.job_id, now=later()))
    with pytest.raises(StateConflict, match="not charged"):
        second.store(0, NOISY)
    with pytest.raises(StateConflict, match="not charged"):
        second.store(1, NOISY)


def test_only_int64_sums_are_kept(database: Database) -> None:
    _, _, account = running_job(database)
    account.charge(0, "votes", 1)
    for dtype in (np.float64, np.int32, object):
        with pytest.raises(InvalidInput):
            account.store(0, NOISY.astype(dtype))


@pytest.mark.both_databases
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3, 4)])
def test_sums_of_any_shape_come_back_as_they_were(database: Database, shape: tuple[int, ...]) -> None:
    _, _, account = running_job(database)
    noisy = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, shape, dtype=np.int64, endpoint=True)
    noisy = np.asarray(noisy, dtype=np.int64)
    account.charge(0, "votes", 1)
    account.store(0, noisy)
    replayed = account.replay(0)
    assert replayed is not None
    np.testing.assert_array_equal(replayed, noisy)
    assert replayed.shape == shape


def test_the_journal_tells_the_whole_story(database: Database) -> None:
    dataset, lease, account = running_job(database, ledger_units=1000)
    account.charge(7, "votes.topagg", 300)
    account.store(7, NOISY)
    leases.finish(database, lease, JobState.SUCCEEDED)
    told = [
        (entry.seq, entry.kind, entry.job_id, entry.step, entry.label, entry.ledger_units, entry.lease_token)
        for entry in journal_of(database, dataset.id)
    ]
    assert told == [
        (1, "open", None, None, "epsilon=1.0 delta=1e-05", accounting.limit_units(EPSILON, DELTA), None),
        (2, "reserve", lease.job_id, None, "", 1000, None),
        (3, "charge", lease.job_id, 7, "votes.topagg", 300, 1),
        (4, "settle", lease.job_id, None, "", 700, None),
    ]
    assert {entry.dataset_id for entry in journal_of(database, dataset.id)} == {dataset.id}


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-13, 1e-14), (1e6, 1e-5)])
def test_budgets_that_integers_cannot_hold_are_refused(database: Database, epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidSpec):
        new_dataset(database, epsilon=epsilon, delta=delta)
    assert new_dataset(database, epsilon=200.0)


@pytest.mark.both_databases
def test_another_connection_sees_a_charge_as_soon_as_it_returned(
    database: Database, reopen: Callable[[], Database]
) -> None:
    dataset, _, account = running_job(database)
    other = reopen()
    for step in range(3):
        account.charge(step, "votes", 10)
        assert state_of(other, dataset.id).charged_units == 10 * (step + 1)
