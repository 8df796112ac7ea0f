"""Times of one stream of events never go back, whatever the clocks of those who write them do."""

from datetime import UTC, datetime, timedelta

import pytest

from datalens_service.store.database import Database
from datalens_service.store.jobs import events, leases, pausing

from .books import claimed, new_dataset, new_job

NOON = datetime(2026, 1, 5, 12, 0, 0, tzinfo=UTC)


class Clock:
    """A clock that is set before each event."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        for place in ("datalens_service.clock.utc_now", "datalens_service.store.jobs.events.utc_now"):
            monkeypatch.setattr(place, self.now)

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
    pausing.request_pause(database, job_id)
    clock.seconds = steps[5]
    leases.release(database, lease)
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
