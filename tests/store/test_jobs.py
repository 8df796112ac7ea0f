"""Times of one stream of events never go back, whatever the clocks of those who write them do."""

import base64
from datetime import UTC, datetime, timedelta

import pytest

from datalens_service.base.errors import InvalidInput, NotFound, StaleLease, StateConflict
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import events, jobs, leases
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.jobs import JobState

from .books import (
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


def test_cancelling_a_job_that_went_back_to_the_queue_ends_it_at_once_and_keeps_its_charges(database: Database) -> None:
    dataset, lease, account = running_job(database, ledger_units=500)
    account.charge(0, "votes", 100)
    leases.give_back(database, lease)
    job = jobs.request_cancel(database, lease.job_id)
    assert (job.state, job.reserved_units, job.finished_at is None) == (JobState.CANCELLED, 0, False)
    found = state_of(database, dataset.id)
    assert (found.reserved_units, found.charged_units) == (0, 100)


def test_cancelling_a_running_job_only_asks_for_it(database: Database) -> None:
    dataset, lease, account = running_job(database, ledger_units=500)
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
    for operation in (jobs.get, jobs.request_cancel, jobs.request_pause, jobs.resume):
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


UNKEPT = ["0001-01-01T00:00:00+14:00|job", "9999-12-31T23:59:59-14:00|job", "2026-01-01T00:00:00+00:00|\0"]
"""What no database compares with."""


@pytest.mark.parametrize(
    "cursor",
    ["x", "%%%", "bm8=", "MjAyNi0wMS0wMVQwMDowMDowMHxqb2I=", "é"]
    + [base64.urlsafe_b64encode(unkept.encode()).decode() for unkept in UNKEPT],
)
def test_a_foreign_cursor_is_refused(database: Database, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        jobs.list_jobs(database, cursor=cursor)


@pytest.mark.parametrize("limit", [0, -1, 201])
def test_a_portion_of_unreasonable_size_is_refused(database: Database, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit"):
        jobs.list_jobs(database, limit=limit)


def told(database: Database, job_id: str) -> list[EventType]:
    found = events.list_events(database, job_id)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [event.type for event in found]


def test_a_queued_job_pauses_at_once_and_keeps_its_reservation_until_it_is_cancelled(database: Database) -> None:
    dataset = new_dataset(database)
    job = jobs.request_pause(database, new_job(database, dataset.id, 500).id)
    assert (job.state, job.reserved_units) == (JobState.PAUSED, 500)
    assert leases.claim(database, job.id, "worker", 30) is None
    assert leases.next_queued(database) == ()
    assert state_of(database, dataset.id).reserved_units == 500
    verified(database, dataset.id)
    assert jobs.request_pause(database, job.id) == job
    assert told(database, job.id) == [EventType.CREATED, EventType.PAUSED]
    assert jobs.request_cancel(database, job.id).state == JobState.CANCELLED
    assert state_of(database, dataset.id).reserved_units == 0


def test_a_running_job_pauses_when_it_is_given_back_and_goes_on_under_a_new_lease(database: Database) -> None:
    dataset, lease, account = running_job(database, ledger_units=500)
    account.charge(0, "votes", 100)
    job = jobs.request_pause(database, lease.job_id)
    assert (job.state, job.pause_requested) == (JobState.RUNNING, True)
    paused = leases.give_back(database, lease)
    assert (paused.state, paused.reserved_units, paused.charged_units) == (JobState.PAUSED, 400, 100)
    with pytest.raises(StaleLease):
        account.charge(1, "votes", 100)
    assert jobs.resume(database, lease.job_id).state == JobState.QUEUED
    again = claimed(database, lease.job_id)
    assert again.token > lease.token
    read_account(database, again).charge(1, "votes", 400)
    assert state_of(database, dataset.id).charged_units == 500
    assert told(database, lease.job_id) == [
        EventType.CREATED,
        EventType.STARTED,
        EventType.PAUSE_REQUESTED,
        EventType.PAUSED,
        EventType.RESUMED,
        EventType.STARTED,
    ]


def test_a_job_whose_worker_is_lost_after_the_wish_pauses(database: Database) -> None:
    _, lease, _ = running_job(database)
    jobs.request_pause(database, lease.job_id)
    [job] = leases.expire_leases(database, now=later())
    assert job.state == JobState.PAUSED


def test_a_pause_that_has_not_begun_is_called_off(database: Database) -> None:
    _, lease, _ = running_job(database)
    jobs.request_pause(database, lease.job_id)
    job = jobs.resume(database, lease.job_id)
    assert (job.state, job.pause_requested) == (JobState.RUNNING, False)
    assert leases.give_back(database, lease).state == JobState.QUEUED


def test_what_cannot_pause_or_resume_is_refused(database: Database) -> None:
    dataset = new_dataset(database)
    job = new_job(database, dataset.id, 500)
    with pytest.raises(StateConflict):
        jobs.resume(database, job.id)
    claimed(database, job.id)
    jobs.request_cancel(database, job.id)
    with pytest.raises(StateConflict):
        jobs.request_pause(database, job.id)


def test_progress_is_told_at_every_percent_and_at_both_ends(database: Database) -> None:
    _, lease, _ = running_job(database)
    for value in range(0, 1001, 4):
        leases.progress(database, lease, "training", value, 1000)
    leases.progress(database, lease, "training", 1000, 1000)
    found = [event for event in events.list_events(database, lease.job_id, limit=200) if event.phase]
    assert [event.value // 10 for event in found] == list(range(101))
    assert {event.type for event in found} == {EventType.PROGRESS}


def test_steps_of_earlier_workers_count_for_nothing(database: Database) -> None:
    _, lease, _ = running_job(database)
    leases.progress(database, lease, "training", 40, 100)
    assert jobs.get(database, lease.job_id).progress.share == 0
    leases.progress(database, lease, "training", 55, 100)
    assert jobs.get(database, lease.job_id).progress.share == pytest.approx(15 / 60)


NOON = datetime(2026, 1, 5, 12, 0, 0, tzinfo=UTC)


class Clock:
    """A clock that is set before each event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        monkeypatch.setattr("datalens_service.store.jobs.events.read_database_clock", lambda _: self.now())

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)


@pytest.mark.both_databases
@pytest.mark.parametrize(
    ("steps", "told"),
    [
        # A clock that is right: progress is told to the minute, and not before what it followed.
        ((30, 40, 50, 90.9, 91, 125), (30, 40, 40, 60, 91, 125)),
        # It steps back by an hour, then runs on.
        ((3600, 0, 1, 2, 3, 3601), (3600, 3600, 3600, 3600, 3600, 3601)),
        # Processes whose clocks differ take turns.
        ((120, 100, 121, 119, 180, 60), (120, 120, 120, 120, 180, 180)),
    ],
    ids=["right", "back", "turns"],
)
def test_times_of_a_stream_never_go_back(
    database: Database, monkeypatch: pytest.MonkeyPatch, steps: tuple[float, ...], told: tuple[float, ...]
) -> None:
    clock = Clock(monkeypatch)
    dataset = new_dataset(database)
    clock.seconds = steps[0]
    job_id = new_job(database, dataset.id, 500).id
    clock.seconds = steps[1]
    lease = claimed(database, job_id)
    for seconds, value in zip(steps[2:4], (1, 50), strict=True):
        clock.seconds = seconds
        leases.progress(database, lease, "training", value, 100)
    clock.seconds = steps[4]
    jobs.request_pause(database, job_id)
    clock.seconds = steps[5]
    leases.give_back(database, lease)
    found = events.list_events(database, job_id)
    assert [(event.created_at - NOON).total_seconds() for event in found] == list(told)


def test_other_streams_keep_their_times(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    dataset = new_dataset(database)
    clock.seconds = 3600
    new_job(database, dataset.id, 100)
    clock.seconds = 0
    [event] = events.list_events(database, new_job(database, dataset.id, 100).id)
    assert event.created_at == NOON
