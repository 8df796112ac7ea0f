import pytest

from datalens_service.errors import StaleLease, StateConflict
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import events, jobs, leases, pausing
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.jobs import JobState

from .books import claimed, later, new_dataset, new_job, read_account, running_job, state_of, verified


def told(database: Database, job_id: str) -> list[EventType]:
    found = events.list_events(database, job_id)
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    return [event.type for event in found]


def test_a_queued_job_pauses_at_once_and_keeps_its_reservation(database: Database) -> None:
    dataset = new_dataset(database)
    job = pausing.request_pause(database, new_job(database, dataset.id, 500).id)
    assert (job.state, job.reserved_units) == (JobState.PAUSED, 500)
    assert leases.claim(database, job.id, "worker", 30) is None
    assert leases.next_queued(database) == ()
    assert state_of(database, dataset.id).reserved_units == 500
    verified(database, dataset.id)


def test_a_running_job_is_asked_and_pauses_when_it_is_given_back(database: Database) -> None:
    dataset, lease, account = running_job(database, units=500)
    account.charge(0, "votes", 100)
    job = pausing.request_pause(database, lease.job_id)
    assert (job.state, job.pause_requested) == (JobState.RUNNING, True)
    paused = leases.release(database, lease)
    assert (paused.state, paused.reserved_units, paused.charged_units) == (JobState.PAUSED, 400, 100)
    with pytest.raises(StaleLease):
        account.charge(1, "votes", 100)
    assert state_of(database, dataset.id).charged_units == 100


def test_a_resumed_job_goes_on_under_a_new_lease(database: Database) -> None:
    dataset, lease, account = running_job(database, units=500)
    account.charge(0, "votes", 100)
    pausing.request_pause(database, lease.job_id)
    leases.release(database, lease)
    assert pausing.resume(database, lease.job_id).state == JobState.QUEUED
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
    pausing.request_pause(database, lease.job_id)
    [job] = leases.expire_leases(database, now=later())
    assert job.state == JobState.PAUSED


def test_a_pause_that_has_not_begun_is_called_off(database: Database) -> None:
    _, lease, _ = running_job(database)
    pausing.request_pause(database, lease.job_id)
    job = pausing.resume(database, lease.job_id)
    assert (job.state, job.pause_requested) == (JobState.RUNNING, False)
    assert leases.release(database, lease).state == JobState.QUEUED


def test_a_paused_job_is_cancelled_at_once(database: Database) -> None:
    dataset = new_dataset(database)
    job = pausing.request_pause(database, new_job(database, dataset.id, 500).id)
    assert jobs.request_cancel(database, job.id).state == JobState.CANCELLED
    assert state_of(database, dataset.id).reserved_units == 0


def test_asking_twice_is_asking_once(database: Database) -> None:
    dataset = new_dataset(database)
    job = pausing.request_pause(database, new_job(database, dataset.id, 500).id)
    assert pausing.request_pause(database, job.id) == job
    assert told(database, job.id) == [EventType.CREATED, EventType.PAUSED]


def test_what_cannot_pause_or_resume_is_refused(database: Database) -> None:
    dataset = new_dataset(database)
    job = new_job(database, dataset.id, 500)
    with pytest.raises(StateConflict):
        pausing.resume(database, job.id)
    claimed(database, job.id)
    jobs.request_cancel(database, job.id)
    with pytest.raises(StateConflict):
        pausing.request_pause(database, job.id)


def test_a_data_set_with_a_paused_job_is_not_deleted(database: Database) -> None:
    dataset = new_dataset(database)
    pausing.request_pause(database, new_job(database, dataset.id, 500).id)
    with pytest.raises(StateConflict):
        datasets.delete(database, dataset.id)


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
