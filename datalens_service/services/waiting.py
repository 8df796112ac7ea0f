"""Why a job waits: what is in the way of a worker that could take it. Counts of others' jobs are told to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import select

from datalens_service.clock import utc_now
from datalens_service.gateways.surroundings import DISK
from datalens_service.spec import Device
from datalens_service.store.database import Database
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.tables import JobRow

_SOON: Final = timedelta(minutes=1)
"""Within which a free worker takes a job."""
_GIVEN_BACK: Final = (
    "Its last worker gave it back or was lost, perhaps for want of memory; it goes on where it was as soon as a worker "
    "is free."
)
_NO_GPU: Final = "It waits for a worker with a GPU, and none is at work."
_BUSY: Final = "Workers are busy with other jobs; it is taken as soon as one of them has ended."
_NOBODY: Final = "No worker has taken it: the operator sees whether one runs."


def list_busy_queues(database: Database) -> frozenset[str | None]:
    """Queues whose workers do a job now."""
    query = select(JobRow.queue).where(JobRow.state == JobState.RUNNING).distinct()
    with database.session() as session:
        return frozenset(session.scalars(query))


def explain_waiting(
    job: Job, faults: Mapping[str, str], busy: frozenset[str | None], now: datetime | None = None
) -> str | None:
    """The reason, for its reader's voice; None of a job that does not wait, or that a worker will take at once."""
    if job.state is not JobState.QUEUED:
        return None
    if DISK in faults:
        return faults[DISK]
    if job.queue in busy:
        return _BUSY
    if job.attempts:
        return _GIVEN_BACK
    if (now or utc_now()) - job.created_at < _SOON:
        return None
    return _NO_GPU if job.spec.get("device") == Device.GPU else _NOBODY
