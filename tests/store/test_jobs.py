import pytest

from datalens_service.errors import InvalidInput, NotFound, StateConflict
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import jobs, leases, pausing
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.jobs import JobState

from .books import claimed, images, journal_of, later, new_dataset, new_job, running_job, state_of, verified


def test_a_new_job_is_queued_and_its_budget_reserved(database: Database) -> None:
    dataset = new_dataset(database)
    job = new_job(database, dataset.id, 500)
    assert (job.state, job.reserved_units, job.charged_units) == (JobState.QUEUED, 500, 0)
    assert job == jobs.get(database, job.id)
    assert job.spec == {"method": "moments"}
    assert state_of(database, dataset.id).reserved_units == 500


def test_a_job_needs_a_data_set(database: Database) -> None:
    with pytest.raises(NotFound):
        new_job(database, "ds_of_nobody", 1)


def test_a_deleted_data_set_takes_no_jobs(database: Database) -> None:
    dataset = new_dataset(database)
    datasets.delete(database, dataset.id)
    with pytest.raises(StateConflict, match="deleted"):
        new_job(database, dataset.id, 1)
    assert state_of(database, dataset.id).reserved_units == 0


def test_the_same_key_and_request_is_the_same_job(database: Database) -> None:
    dataset = new_dataset(database)
    first = new_job(database, dataset.id, 500, idempotency_key="k")
    again = new_job(database, dataset.id, 500, idempotency_key="k")
    assert again == first
    assert state_of(database, dataset.id).reserved_units == 500
    assert new_job(database, dataset.id, 500, idempotency_key="other").id != first.id


def test_a_repeated_request_finds_its_job_even_after_the_data_set_was_deleted(database: Database) -> None:
    dataset = new_dataset(database)
    first = new_job(database, dataset.id, 500, idempotency_key="k")
    jobs.request_cancel(database, first.id)
    datasets.delete(database, dataset.id)
    assert new_job(database, dataset.id, 500, idempotency_key="k").id == first.id


@pytest.mark.parametrize("changed", ["dataset", "spec"])
def test_the_same_key_with_another_request_is_refused(database: Database, changed: str) -> None:
    dataset = new_dataset(database)
    new_job(database, dataset.id, 500, idempotency_key="k")
    other = new_dataset(database, images(seed=1)).id if changed == "dataset" else dataset.id
    spec = {"method": "topagg" if changed == "spec" else "moments"}
    with pytest.raises(StateConflict, match="Idempotency-Key"):
        new_job(database, other, 500, spec=spec, idempotency_key="k")
    assert len(jobs.list_jobs(database).items) == 1


def test_cancelling_a_queued_job_ends_it_at_once_and_returns_everything(database: Database) -> None:
    dataset = new_dataset(database)
    job = jobs.request_cancel(database, new_job(database, dataset.id, 500).id)
    assert (job.state, job.reserved_units) == (JobState.CANCELLED, 0)
    assert job.finished_at is not None
    assert state_of(database, dataset.id).reserved_units == 0
    verified(database, dataset.id)


def test_cancelling_a_job_that_went_back_to_the_queue_keeps_its_charges(database: Database) -> None:
    dataset, lease, account = running_job(database, units=500)
    account.charge(0, "votes", 100)
    leases.release(database, lease)
    assert jobs.request_cancel(database, lease.job_id).state == JobState.CANCELLED
    found = state_of(database, dataset.id)
    assert (found.reserved_units, found.charged_units) == (0, 100)


def test_cancelling_a_running_job_only_asks_for_it(database: Database) -> None:
    dataset, lease, account = running_job(database, units=500)
    assert not jobs.get(database, lease.job_id).cancel_requested
    assert jobs.request_cancel(database, lease.job_id).state == JobState.RUNNING
    assert jobs.get(database, lease.job_id).cancel_requested
    # A step that has begun may end: the worker looks between two steps.
    account.charge(0, "votes", 100)
    assert leases.finish(database, lease, JobState.CANCELLED).state == JobState.CANCELLED
    found = state_of(database, dataset.id)
    assert (found.reserved_units, found.charged_units) == (0, 100)


@pytest.mark.parametrize("state", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
def test_a_job_that_has_ended_cannot_be_cancelled(database: Database, state: JobState) -> None:
    dataset, lease, _ = running_job(database)
    leases.finish(database, lease, state)
    before = journal_of(database, dataset.id)
    with pytest.raises(StateConflict, match=state):
        jobs.request_cancel(database, lease.job_id)
    assert journal_of(database, dataset.id) == before


def test_unknown_jobs_are_not_found(database: Database) -> None:
    for operation in (jobs.get, jobs.request_cancel, pausing.request_pause, pausing.resume):
        with pytest.raises(NotFound):
            operation(database, "job_of_nobody")


@pytest.mark.both_databases
def test_a_list_walks_through_all_jobs_once_newest_first(database: Database) -> None:
    dataset = new_dataset(database)
    made = [new_job(database, dataset.id, 1).id for _ in range(7)]
    seen: list[str] = []
    cursor = None
    for expected in (3, 3, 1):
        page = jobs.list_jobs(database, limit=3, cursor=cursor)
        assert len(page.items) == expected
        seen += [job.id for job in page.items]
        cursor = page.next_cursor
        # A job that arrives meanwhile does not shift the rest.
        new_job(database, dataset.id, 1)
    assert cursor is None
    assert seen == made[::-1]


@pytest.mark.both_databases
def test_a_list_can_be_narrowed(database: Database) -> None:
    first, second = new_dataset(database), new_dataset(database, images(seed=1))
    job = new_job(database, first.id, 1)
    other = new_job(database, second.id, 1)
    claimed(database, other.id)
    assert [found.id for found in jobs.list_jobs(database, JobFilter(dataset_id=first.id)).items] == [job.id]
    assert [found.id for found in jobs.list_jobs(database, JobFilter(state=JobState.RUNNING)).items] == [other.id]


@pytest.mark.parametrize("cursor", ["x", "%%%", "bm8=", "MjAyNi0wMS0wMVQwMDowMDowMHxqb2I=", "é"])
def test_a_foreign_cursor_is_refused(database: Database, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        jobs.list_jobs(database, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_portion_of_unreasonable_size_is_refused(database: Database, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        jobs.list_jobs(database, limit=limit)


def test_a_job_that_was_lost_too_often_says_so(database: Database) -> None:
    _, lease, _ = running_job(database, max_attempts=1)
    leases.expire_leases(database, now=later())
    job = jobs.get(database, lease.job_id)
    assert job.state == JobState.FAILED
    assert job.error is not None
    assert job.error["type"] == "worker-lost"
