"""Pausing a job and going on with it. Neither changes what it reserved, charged or stored."""

from datalens_service.errors import StateConflict
from datalens_service.store.database import Database
from datalens_service.store.jobs import events
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import ledger


def request_pause(database: Database, job_id: str) -> Job:
    """Pause a queued job at once (h), or ask the worker of a running one to stop between two steps (i). Repeatable.

    Raises:
        StateConflict: The job has ended, or is being cancelled.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if JobState(row.state).terminal or row.cancel_requested:
            raise StateConflict("A job that has ended or is being cancelled does not pause.")
        if row.pause_requested:
            return Job.from_row(row)
        row.pause_requested = True
        if row.state == JobState.QUEUED:
            row.state = JobState.PAUSED
        events.record(session, row, EventType.PAUSED if row.state == JobState.PAUSED else EventType.PAUSE_REQUESTED)
        return Job.from_row(row)


def resume(database: Database, job_id: str) -> Job:
    """Put a paused job back into the queue (j), or call off a pause that has not begun.

    Raises:
        StateConflict: Nobody asked the job to pause.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if JobState(row.state).terminal or not row.pause_requested:
            raise StateConflict(f"The job is {row.state} and not paused.")
        row.pause_requested = False
        if row.state == JobState.PAUSED:
            row.state = JobState.QUEUED
        events.record(session, row, EventType.RESUMED)
        return Job.from_row(row)
