from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from datalens_service.base.errors import InvalidInput, NotFound, StaleLease
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease

from .books import LEASE_SECONDS, claimed, journal_of, later, new_dataset, new_job, read_account, running_job, state_of

pytestmark = pytest.mark.both_databases

NOISY = np.arange(3, dtype=np.int64)


def test_claiming_starts_a_job(database: Database) -> None:
    job = new_job(database, new_dataset(database).id, 10)
    lease = claimed(database, job.id)
    assert (lease.token, lease.owner) == (1, "worker")
    found = jobs.get(database, job.id)
    assert (found.state, found.attempts) == (JobState.RUNNING, 1)
    assert found.started_at is not None


def test_a_lease_holds_until_it_runs_out(database: Database) -> None:
    _, lease, _ = running_job(database)
    almost, after = lease.until - timedelta(seconds=1), lease.until + timedelta(seconds=1)
    assert leases.claim(database, lease.job_id, "other", LEASE_SECONDS, now=almost) is None
    second = leases.claim(database, lease.job_id, "other", LEASE_SECONDS, now=after)
    assert second is not None
    assert second.token == lease.token + 1


def test_a_renewed_lease_holds_longer(database: Database) -> None:
    _, lease, _ = running_job(database)
    renewed = leases.renew(database, lease, now=lease.until)
    assert renewed.until == lease.until + timedelta(seconds=LEASE_SECONDS)
    after = lease.until + timedelta(seconds=1)
    assert leases.claim(database, lease.job_id, "other", LEASE_SECONDS, now=after) is None


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_has_ended_is_not_given_out(database: Database, state: JobState) -> None:
    _, lease, _ = running_job(database)
    leases.finish(database, lease, state)
    assert leases.claim(database, lease.job_id, "other", LEASE_SECONDS, now=later()) is None


def test_an_unknown_job_cannot_be_claimed(database: Database) -> None:
    with pytest.raises(NotFound):
        leases.claim(database, "job_of_nobody", "worker", LEASE_SECONDS)


WRITES: dict[str, Callable[[Database, Lease], object]] = {
    "charge": lambda database, lease: read_account(database, lease).charge(5, "votes", 1),
    "store": lambda database, lease: read_account(database, lease).store(0, NOISY),
    "renew": leases.renew,
    "progress": lambda database, lease: leases.progress(database, lease, "training", 1, 2),
    "finish": lambda database, lease: leases.finish(database, lease, JobState.SUCCEEDED),
    "give_back": leases.give_back,
}


@pytest.mark.parametrize("fate", ["taken over", "back in the queue", "ended"])
def test_a_worker_that_comes_too_late_writes_nothing(database: Database, fate: str) -> None:
    """SIGSTOP, redelivery, SIGCONT: whatever the first worker does next is refused."""
    dataset, stale, account = running_job(database)
    account.charge(0, "votes", 10)
    if fate == "taken over":
        claimed(database, stale.job_id, now=later())
    elif fate == "back in the queue":
        leases.expire_leases(database, now=later())
    else:
        leases.finish(database, stale, JobState.FAILED)
    before = (jobs.get(database, stale.job_id), journal_of(database, dataset.id))
    for write in WRITES.values():
        with pytest.raises(StaleLease):
            write(database, stale)
        assert (jobs.get(database, stale.job_id), journal_of(database, dataset.id)) == before


def test_every_write_of_an_unknown_job_is_not_found(database: Database) -> None:
    nobody = Lease("job_of_nobody", 1, "worker", 30, datetime.now(UTC))
    for write in WRITES.values():
        with pytest.raises(NotFound):
            write(database, nobody)


def test_an_expired_lease_that_nobody_took_over_still_writes(database: Database) -> None:
    """The clock only decides who may be replaced; a late but only worker loses nothing."""
    dataset, lease, account = running_job(database)
    leases.renew(database, lease, now=datetime.now(UTC) - timedelta(days=1))
    account.charge(0, "votes", 10)
    assert state_of(database, dataset.id).charged_units == 10


def test_progress_is_kept(database: Database) -> None:
    _, lease, _ = running_job(database)
    leases.progress(database, lease, "training", 3, 149)
    found = jobs.get(database, lease.job_id).progress
    assert (found.phase, found.value, found.maximum) == ("training", 3, 149)


def test_a_job_does_not_end_as_queued_or_running(database: Database) -> None:
    _, lease, _ = running_job(database)
    for state in (JobState.QUEUED, JobState.RUNNING):
        with pytest.raises(InvalidInput):
            leases.finish(database, lease, state)


def test_an_error_stays_on_the_job(database: Database) -> None:
    _, lease, _ = running_job(database)
    error = {"type": "epsilon-infeasible", "detail": "Ask for more."}
    leases.finish(database, lease, JobState.FAILED, error)
    found = jobs.get(database, lease.job_id)
    assert (found.state, found.error) == (JobState.FAILED, error)
    assert found.finished_at is not None


def test_a_job_given_back_is_the_next_again_and_has_used_no_attempt(database: Database) -> None:
    _, lease, _ = running_job(database)
    leases.give_back(database, lease)
    found = jobs.get(database, lease.job_id)
    assert (found.state, found.attempts) == (JobState.QUEUED, 0)
    assert claimed(database, lease.job_id).token == 2


def test_jobs_of_lost_workers_return_to_the_queue(database: Database) -> None:
    _, lease, _ = running_job(database)
    alive = claimed(database, new_job(database, new_dataset(database).id, 10).id, now=later())
    changed = leases.expire_leases(database, now=later())
    assert [(job.id, job.state) for job in changed] == [(lease.job_id, JobState.QUEUED)]
    assert jobs.get(database, alive.job_id).state == JobState.RUNNING
    assert leases.expire_leases(database, now=later()) == ()


@pytest.mark.parametrize("by", ["sweep", "claim"])
def test_a_job_without_progress_fails_after_its_last_attempt(database: Database, by: str) -> None:
    dataset = new_dataset(database)
    job = new_job(database, dataset.id, 100, max_attempts=3)
    now = datetime.now(UTC)
    for attempt in range(3):
        lease = claimed(database, job.id, now=now)
        read_account(database, lease).charge(0, "votes", 10)
        assert jobs.get(database, job.id).attempts == attempt + 1
        now = lease.until + timedelta(seconds=1)
        if by == "sweep":
            leases.expire_leases(database, now=now)
    if by == "claim":
        assert leases.claim(database, job.id, "worker", LEASE_SECONDS, now=now) is None
    ended = jobs.get(database, job.id)
    assert (ended.state, ended.error and ended.error["type"]) == (JobState.FAILED, "worker-lost")
    found = state_of(database, dataset.id)
    assert (found.reserved_units, found.charged_units) == (0, 30)


def test_progress_starts_the_count_of_attempts_anew(database: Database) -> None:
    job = new_job(database, new_dataset(database).id, 100, max_attempts=2)
    now = datetime.now(UTC)
    for step in range(5):
        lease = claimed(database, job.id, now=now)
        account = read_account(database, lease)
        account.charge(step, "votes", 1)
        account.store(step, NOISY)
        assert jobs.get(database, job.id).attempts == 0
        now = lease.until + timedelta(seconds=1)


@pytest.mark.parametrize("lost", [True, False])
def test_a_job_without_a_worker_that_was_to_be_cancelled_is_cancelled(database: Database, lost: bool) -> None:
    dataset, lease, account = running_job(database)
    account.charge(0, "votes", 10)
    jobs.request_cancel(database, lease.job_id)
    job = leases.expire_leases(database, now=later())[0] if lost else leases.give_back(database, lease)
    assert job.state == JobState.CANCELLED
    found = state_of(database, dataset.id)
    assert (found.reserved_units, found.charged_units) == (0, 10)
