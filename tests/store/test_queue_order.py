"""Who gets which job: by priority, share and age, once, by the clock of the database."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

import pytest
from sqlalchemy import select, update

from datalens_service.store.access import tenants
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.schema.tables import JOB_FORMAT, JobRow

from .books import LEASE_SECONDS, claimed, images, later, new_dataset, new_job, read_account, running_job
from .test_concurrency import together

pytestmark = pytest.mark.both_databases


def next_lease(database: Database, queue: str | None = None) -> Lease | None:
    return leases.claim_next(database, "worker", LEASE_SECONDS, queue=queue)


def waiting_jobs(database: Database, count: int, queue: str | None = None) -> list[str]:
    dataset = new_dataset(database)
    return [new_job(database, dataset.id, 1, queue=queue).id for _ in range(count)]


def test_free_worker_takes_what_has_waited_longest(database: Database) -> None:
    submitted = waiting_jobs(database, 3)
    taken = [next_lease(database) for _ in range(4)]
    assert [lease and lease.job_id for lease in taken] == [*submitted, None]
    assert all(jobs.get(database, job_id).attempts == 1 for job_id in submitted)


@pytest.mark.parametrize("fate", ["lost", "given back"])
def test_interrupted_job_keeps_its_place_before_all_that_came_later(database: Database, fate: str) -> None:
    first, *_ = waiting_jobs(database, 13)
    lease = claimed(database, first)
    if fate == "lost":
        leases.expire_leases(database, now=later())
    else:
        leases.give_back(database, lease)
    again = next_lease(database)
    assert again is not None
    assert (again.job_id, again.token) == (first, 2)


def test_queues_do_not_take_from_each_other(database: Database) -> None:
    [cpu], [gpu] = waiting_jobs(database, 1, "cpu"), waiting_jobs(database, 1, "gpu")
    taken = [next_lease(database, queue) for queue in ("gpu", "gpu", "cpu")]
    assert [lease and lease.job_id for lease in taken] == [gpu, None, cpu]


def test_workers_take_no_job_of_a_newer_format(database: Database) -> None:
    newer, same = waiting_jobs(database, 2)
    with database.transaction() as session:
        session.execute(update(JobRow).where(JobRow.id == newer).values(format=JOB_FORMAT + 1))
    taken = [next_lease(database) for _ in range(2)]
    assert [lease and lease.job_id for lease in taken] == [same, None]
    assert leases.claim(database, newer, "worker", LEASE_SECONDS) is None


def test_workers_that_look_at_once_take_different_jobs(database: Database) -> None:
    submitted = waiting_jobs(database, 5)
    taken = [lease for lease in together([lambda: next_lease(database)] * 8) if lease is not None]
    assert sorted(lease.job_id for lease in taken) == sorted(submitted)
    assert {lease.token for lease in taken} == {1}


def test_worker_does_not_wait_for_one_that_is_taking_a_job(postgresql_database: Database) -> None:
    first, second = waiting_jobs(postgresql_database, 2)
    with postgresql_database.transaction() as session:
        session.scalars(select(JobRow).where(JobRow.id == first).with_for_update()).one()
        lease = next_lease(postgresql_database)
    assert lease is not None
    assert lease.job_id == second


def test_process_adopts_the_lease_that_was_claimed_for_it(database: Database) -> None:
    _, lease, account = running_job(database)
    adopted = leases.adopt(database, lease.job_id, lease.token, "process", 2 * LEASE_SECONDS)
    assert (adopted.token, adopted.seconds) == (lease.token, 2 * LEASE_SECONDS)
    assert jobs.get(database, lease.job_id).attempts == 1
    after = lease.until + timedelta(seconds=1)
    assert leases.expire_leases(database, now=after) == ()
    account.charge(0, "votes", 1)


SECOND = timedelta(seconds=1)


def clock_that_is_off(seconds: int) -> type[datetime]:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    return Clock


@pytest.mark.postgres
@pytest.mark.parametrize("seconds", [-3600, 3600])
def test_clock_of_a_worker_decides_nothing(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    database = postgresql_database
    _, healthy, _ = running_job(database)
    [waiting] = waiting_jobs(database, 1)
    before = datetime.now(UTC)
    with monkeypatch.context() as machine:
        machine.setattr("datalens_service.base.clock.datetime", clock_that_is_off(seconds))
        # Neither takes it the job of another, nor holds it its own shorter or longer than it should.
        assert leases.expire_leases(database) == ()
        assert leases.claim(database, healthy.job_id, "wrong clock", LEASE_SECONDS) is None
        held = leases.claim_next(database, "wrong clock", LEASE_SECONDS)
        assert held is not None
        assert held.job_id == waiting
        lasts = [held, leases.renew(database, held), leases.adopt(database, waiting, 1, "process", LEASE_SECONDS)]
    lasting = timedelta(seconds=LEASE_SECONDS)
    for lease in lasts:
        assert before + lasting - SECOND <= lease.until <= datetime.now(UTC) + lasting + SECOND
    assert leases.expire_leases(database) == ()
    assert jobs.get(database, waiting).state == JobState.RUNNING
    read_account(database, held).charge(0, "votes", 1)


@pytest.mark.postgres
def test_job_of_processes_with_clocks_that_are_off_ends_after_it_began(
    postgresql_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgresql_database
    with monkeypatch.context() as fast:
        fast.setattr("datalens_service.base.clock.datetime", clock_that_is_off(60))
        waiting_jobs(database, 1)
    lease = next_lease(database)
    assert lease is not None
    with monkeypatch.context() as slow:
        slow.setattr("datalens_service.base.clock.datetime", clock_that_is_off(-60))
        leases.mark_released(database, lease, "generator")
        ended = leases.finish(database, lease, JobState.SUCCEEDED)
    assert ended.started_at is not None
    assert ended.released_at is not None
    assert ended.finished_at is not None
    assert ended.created_at <= ended.started_at <= ended.released_at <= ended.finished_at


CLAIMS: list[Callable[[Database], object]] = [next_lease, lambda database: leases.next_queued(database)]


@pytest.mark.parametrize("claim", CLAIMS)
def test_cancelled_job_is_not_taken(database: Database, claim: Callable[[Database], object]) -> None:
    [job_id] = waiting_jobs(database, 1)
    jobs.request_cancel(database, job_id)
    assert not claim(database)


def tenant_dataset(database: Database, name: str, seed: int) -> str:
    return new_dataset(database, images(seed), tenant_id=tenants.create(database, name).id).id


def taken_in_order(database: Database, count: int, queue: str | None = None) -> list[str]:
    made = [next_lease(database, queue) for _ in range(count)]
    return [lease.job_id for lease in made if lease is not None]


def test_higher_priority_is_taken_first(database: Database) -> None:
    dataset = new_dataset(database)
    submitted = {priority: new_job(database, dataset.id, 1, priority=priority).id for priority in (5, 0, 9, 6)}
    assert taken_in_order(database, 5) == [submitted[priority] for priority in (9, 6, 5, 0)]


def test_priority_counts_within_a_kind_of_device_only(database: Database) -> None:
    dataset = new_dataset(database)
    urgent = new_job(database, dataset.id, 1, queue="gpu", priority=9).id
    usual = new_job(database, dataset.id, 1, queue="cpu").id
    assert taken_in_order(database, 2, "cpu") == [usual]
    assert taken_in_order(database, 2, "gpu") == [urgent]


def test_tenant_with_fewest_running_jobs_is_served_first(database: Database) -> None:
    busy, small, late = (tenant_dataset(database, name, seed) for seed, name in enumerate(("busy", "small", "late")))
    of_busy = [new_job(database, busy, 1).id for _ in range(3)]
    of_small = [new_job(database, small, 1).id for _ in range(2)]
    of_late = new_job(database, late, 1).id
    first = [of_busy[0], of_small[0], of_late]
    assert taken_in_order(database, 6) == [*first, of_busy[1], of_small[1], of_busy[2]]


def test_what_a_tenant_runs_elsewhere_does_not_lower_its_share(database: Database) -> None:
    many, one = (tenant_dataset(database, name, seed) for seed, name in enumerate(("many", "one")))
    for _ in range(2):
        new_job(database, many, 1, queue="cpu")
    assert len(taken_in_order(database, 2, "cpu")) == 2
    first = new_job(database, many, 1, queue="gpu").id
    second = new_job(database, one, 1, queue="gpu").id
    assert taken_in_order(database, 2, "gpu") == [first, second]


def test_ended_job_frees_the_share_of_its_tenant(database: Database) -> None:
    early, late = (tenant_dataset(database, name, seed) for seed, name in enumerate(("early", "late")))
    lease = claimed(database, new_job(database, early, 1).id)
    waiting = [new_job(database, dataset, 1).id for dataset in (early, late)]
    leases.finish(database, lease, JobState.FAILED, {"type": "internal-error"})
    assert taken_in_order(database, 2) == waiting
