"""Many threads on one database at the same moment."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import BudgetExceeded, DatalensError, StaleLease, StateConflict
from datalens_service.store.access import access_log
from datalens_service.store.access.usage import count_usage
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.recovery import check_against_log
from datalens_service.store.schema.tables import DEFAULT_TENANT

from .books import (
    LEASE_SECONDS,
    assert_totals_add_up,
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
)

pytestmark = pytest.mark.both_databases

NOISY = np.arange(4, dtype=np.int64)


def together(actions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Start all actions at the same moment; what each returned, or the deliberate error it raised."""
    barrier = Barrier(len(actions))

    def run(action: Callable[[], Any]) -> Any:
        barrier.wait()
        try:
            return action()
        except DatalensError as error:
            return error

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


def test_of_fifty_jobs_that_race_for_ten_reservations_exactly_ten_win(database: Database) -> None:
    dataset = new_dataset(database)
    share = state_of(database, dataset.id).limit_units // 10
    outcomes = together([lambda: new_job(database, dataset.id, share)] * 50)
    assert sum(isinstance(outcome, jobs.Job) for outcome in outcomes) == 10
    assert sum(isinstance(outcome, BudgetExceeded) for outcome in outcomes) == 40
    assert verified(database, dataset.id).total_reserved == 10 * share
    assert len(jobs.list_jobs(database).items) == 10


def test_charges_of_many_jobs_at_once_all_count(database: Database) -> None:
    dataset = new_dataset(database)
    held = [claimed(database, new_job(database, dataset.id, 100).id) for _ in range(8)]
    accounts = [read_account(database, lease) for lease in held]

    def spend(account: Any) -> None:
        for step in range(10):
            account.charge(step, "votes", 10)

    together([lambda account=account: spend(account) for account in accounts])
    balance = verified(database, dataset.id)
    assert (balance.total_charged, balance.total_reserved) == (800, 0)


def test_one_reservation_is_never_charged_beyond_by_threads_of_one_worker(database: Database) -> None:
    dataset, _, account = running_job(database, ledger_units=100)
    outcomes = together([lambda step=step: account.charge(step, "votes", 30) for step in range(8)])
    assert sum(isinstance(outcome, BudgetExceeded) for outcome in outcomes) == 5
    assert verified(database, dataset.id).total_charged == 90


def test_one_job_is_claimed_once(database: Database) -> None:
    job = new_job(database, new_dataset(database).id, 100)
    outcomes = together([lambda: leases.claim(database, job.id, "worker", LEASE_SECONDS)] * 10)
    assert sum(outcome is not None for outcome in outcomes) == 1


def test_jobs_that_end_at_once_all_count(database: Database) -> None:
    held = [claimed(database, new_job(database, new_dataset(database, images(seed)).id, 100).id) for seed in range(8)]
    together([lambda lease=lease: leases.finish(database, lease, JobState.SUCCEEDED) for lease in held])
    assert count_usage(database, DEFAULT_TENANT).jobs == {"succeeded": 8}
    assert_totals_add_up(database)


def test_one_lost_job_is_taken_over_once(database: Database) -> None:
    _, lease, _ = running_job(database)
    outcomes = together([lambda: leases.claim(database, lease.job_id, "worker", 7200, now=later())] * 10)
    taken = [outcome for outcome in outcomes if outcome is not None]
    assert [outcome.token for outcome in taken] == [2]


def test_one_step_is_stored_once(database: Database) -> None:
    _, _, account = running_job(database)
    account.charge(0, "votes", 10)
    outcomes = together([lambda value=value: account.store(0, NOISY + value) for value in range(8)])
    assert sum(outcome is None for outcome in outcomes) == 1
    assert sum(isinstance(outcome, StateConflict) for outcome in outcomes) == 7
    stored = account.replay(0)
    assert stored is not None
    np.testing.assert_array_equal(stored, NOISY + next(v for v, outcome in enumerate(outcomes) if outcome is None))


def test_an_old_and_a_new_worker_on_the_same_step_release_one_sum(database: Database) -> None:
    dataset, stale, _ = running_job(database)
    current = claimed(database, stale.job_id, now=later())

    def step(lease: leases.Lease, value: int) -> None:
        read_account(database, lease).charge(0, "votes", 10)
        read_account(database, lease).store(0, NOISY + value)

    outcomes = together([lambda: step(stale, 1), lambda: step(current, 2)])
    assert isinstance(outcomes[0], StaleLease)
    assert outcomes[1] is None
    assert verified(database, dataset.id).total_charged == 10


def test_ten_equal_requests_with_one_key_make_one_job(database: Database) -> None:
    dataset = new_dataset(database)
    outcomes = together([lambda: new_job(database, dataset.id, 100, idempotency_key="k")] * 10)
    assert len({outcome.id for outcome in outcomes}) == 1
    assert state_of(database, dataset.id).reserved_units == 100


def test_one_key_used_first_on_two_accounts_at_once_serves_one(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database, images(seed=1))
    outcomes = together([
        lambda chosen=chosen: new_job(database, chosen.id, 100, idempotency_key="k")
        for chosen in (first, second) * 4
    ])  # fmt: skip
    assert len({outcome.id for outcome in outcomes if isinstance(outcome, jobs.Job)}) == 1
    assert sum(isinstance(outcome, StateConflict) for outcome in outcomes) == 4
    reserved = state_of(database, first.id).reserved_units + state_of(database, second.id).reserved_units
    assert reserved == 100


def test_equal_uploads_at_once_share_one_account(database: Database) -> None:
    outcomes = together([lambda: new_dataset(database)] * 6)
    assert len({outcome.account_id for outcome in outcomes}) == 1
    kinds = [entry.kind for entry in journal_of(database, outcomes[0].id)]
    assert kinds == ["open"] + ["join"] * 5


def test_deletion_and_submission_at_once_leave_no_job_without_data(database: Database) -> None:
    for seed in range(5):
        dataset = new_dataset(database, images(seed=seed))
        made, deleted = together([
            lambda chosen=dataset: new_job(database, chosen.id, 10),
            lambda chosen=dataset: datasets.delete(database, chosen.id),
        ])  # fmt: skip
        assert isinstance(made, StateConflict) != isinstance(deleted, StateConflict)


def test_cancel_finish_and_expiry_at_once_settle_once(database: Database) -> None:
    dataset, lease, account = running_job(database, ledger_units=100, max_attempts=1)
    account.charge(0, "votes", 10)
    together([
        lambda: jobs.request_cancel(database, lease.job_id),
        lambda: leases.finish(database, lease, JobState.SUCCEEDED),
        lambda: leases.expire_leases(database, now=later()),
        lambda: leases.claim(database, lease.job_id, "other", LEASE_SECONDS, now=later()),
    ])  # fmt: skip
    kinds = [entry.kind for entry in journal_of(database, dataset.id)]
    assert kinds == ["open", "reserve", "charge", "settle"]
    balance = verified(database, dataset.id)
    assert (balance.total_charged, balance.total_reserved) == (10, 0)
    assert jobs.get(database, lease.job_id).state.terminal


def test_an_audit_beside_running_charges_counts_none_of_them_twice(database: Database) -> None:
    dataset, _, account = running_job(database, ledger_units=1000)

    def spend() -> None:
        for step in range(20):
            account.charge(step, "votes", 10)

    def audit() -> None:
        for _ in range(10):
            assert check_against_log(database) == ()

    together([spend, audit, audit])
    assert [entry.kind for entry in journal_of(database, dataset.id)].count("recovered") == 0
    assert verified(database, dataset.id).total_charged == 200


def test_notes_at_once_are_sealed_one_after_another(database: Database) -> None:
    def note(actor: str) -> None:
        access_log.note(database, DEFAULT_TENANT, actor=actor, action="getJobReport", object_id=None)

    actors = [f"key_{number}" for number in range(20)]
    assert together([partial(note, actor) for actor in actors]) == [None] * 20
    assert {entry.actor for entry in access_log.list_entries(database, DEFAULT_TENANT)[0]} == set(actors)
    assert access_log.verify(database, DEFAULT_TENANT).seq == 20
