"""Who runs a job: claim, renew, report, finish, give back, and what happens to the jobs of lost workers.

A lease carries a token that grows with every claim. Whatever a worker writes names its token, so a worker that
was stopped, declared lost and woken again is refused (`StaleLease`) however late it comes. The clock decides
only when a silent worker may be replaced, never who may write.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from datalens_service.clock import utc_now
from datalens_service.errors import InvalidInput
from datalens_service.store.database import Database
from datalens_service.store.jobs import events, jobs, released_models
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.jobs import Job, JobState, end
from datalens_service.store.ledger import ledger
from datalens_service.store.tables import JobRow

WORKER_LOST = {
    "type": "worker-lost",
    "title": "The worker was lost",
    "detail": "Workers of this job ended without a word several times in a row; look for a lack of memory, "
    "then submit it again. What was charged stays charged.",
}


@dataclass(frozen=True)
class Lease:
    """The right to run a job.

    Attributes:
        job_id: Which.
        token: Fencing token; goes with every write.
        owner: Name of the worker, for the operator.
        seconds: For how long a claim or renewal holds.
        until: When it runs out unless it is renewed.
    """

    job_id: str
    token: int
    owner: str
    seconds: float
    until: datetime


def claim(
    database: Database, job_id: str, owner: str, lease_seconds: float, *, now: datetime | None = None
) -> Lease | None:
    """Take a queued job (a), or one whose lease ran out (g).

    Args:
        database: Where.
        job_id: Which.
        owner: Name of the worker.
        lease_seconds: How long silence is tolerated.
        now: For tests; the present by default.

    Returns:
        The lease; None if another worker holds the job, or it has ended (also: was lost too often, just now).

    Raises:
        NotFound: No such job.
    """
    now = now or utc_now()
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if _ran_out(row, now):
            _requeue_or_end(session, row, EventType.LEASE_LOST)
        if row.state != JobState.QUEUED:
            return None
        until = now + timedelta(seconds=lease_seconds)
        row.state = JobState.RUNNING
        row.lease_token += 1
        row.attempts += 1
        row.lease_owner, row.lease_until = owner, until
        row.started_at = row.started_at or now
        row.phase_started_at = None
        events.record(session, row, EventType.STARTED)
        return Lease(job_id, row.lease_token, owner, lease_seconds, until)


def renew(database: Database, lease: Lease, *, now: datetime | None = None) -> Lease:
    """Hold the job for another `lease.seconds`.

    Raises:
        StaleLease: Another worker holds the job, or it has ended.
    """
    until = (now or utc_now()) + timedelta(seconds=lease.seconds)
    with database.transaction() as session:
        _held(session, lease).lease_until = until
    return replace(lease, until=until)


def progress(database: Database, lease: Lease, phase: str, value: int, maximum: int) -> None:
    """Say how far the job is, in public numbers only: never a loss, a count or a time of the private set.

    Raises:
        StaleLease: Another worker holds the job, or it has ended.
    """
    now = utc_now()
    with database.transaction() as session:
        row = _held(session, lease)
        news = events.worth_telling(row, phase, value, maximum)
        if row.phase != phase or row.phase_started_at is None:
            row.phase_started_at, row.phase_start = now, value
        row.phase, row.progress_value, row.progress_maximum = phase, value, maximum
        if news:
            events.record(session, row, EventType.PROGRESS)


def mark_released(database: Database, lease: Lease, kind: str = released_models.GENERATOR) -> None:
    """Say that everything is stored that the job was paid for; its evaluation may go on. Repeatable.

    Args:
        database: Where.
        lease: Of the job.
        kind: Of the model that it released.

    Raises:
        StaleLease: Another worker holds the job, or it has ended.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, lease.job_id)
        ledger.check_lease(row, lease.token)
        if row.released_at is None:
            jobs.release(session, row, kind)
            events.record(session, row, EventType.RELEASED)


def finish(database: Database, lease: Lease, state: JobState, error: dict[str, Any] | None = None) -> Job:
    """End the job (b, c or e; always b once its images are ready) and return what it did not spend, in one transaction.

    Raises:
        StaleLease: Another worker holds the job, or it has ended.
        InvalidInput: `state` is not a last state.
    """
    if not state.terminal:
        raise InvalidInput(f"A job does not end as {state}.")
    with database.transaction() as session:
        _, row = ledger.lock(session, lease.job_id)
        ledger.check_lease(row, lease.token)
        end(session, row, state, error)
        return Job.of(row)


def release(database: Database, lease: Lease) -> Job:
    """Give the job back (f, i), for example when the worker is asked to shut down; not an attempt.

    Raises:
        StaleLease: Another worker holds the job, or it has ended.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, lease.job_id)
        ledger.check_lease(row, lease.token)
        row.attempts = max(0, row.attempts - 1)
        _requeue_or_end(session, row, EventType.REQUEUED)
        return Job.of(row)


def expire_leases(database: Database, *, now: datetime | None = None) -> tuple[Job, ...]:
    """Put jobs of lost workers back (f, i); end those that were cancelled (e) or lost too often (c).

    Returns:
        The jobs that changed, as they are now.
    """
    now = now or utc_now()
    candidates = select(JobRow.id).where(JobRow.state == JobState.RUNNING, JobRow.lease_until < now)
    with database.session() as session:
        job_ids = session.scalars(candidates.order_by(JobRow.id)).all()
    changed = (_expire(database, job_id, now) for job_id in job_ids)
    return tuple(job for job in changed if job is not None)


def next_queued(database: Database, limit: int = 1, queue: str | None = None) -> tuple[str, ...]:
    """Ids of the jobs that have waited longest.

    Args:
        database: Where.
        limit: At most so many.
        queue: Only those of this queue, and those of none; None is all.
    """
    query = select(JobRow.id).where(JobRow.state == JobState.QUEUED).order_by(JobRow.created_at, JobRow.id)
    if queue is not None:
        query = query.where(or_(JobRow.queue.is_(None), JobRow.queue == queue))
    with database.session() as session:
        return tuple(session.scalars(query.limit(limit)))


def _expire(database: Database, job_id: str, now: datetime) -> Job | None:
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if not _ran_out(row, now):
            return None
        _requeue_or_end(session, row, EventType.LEASE_LOST)
        return Job.of(row)


def _ran_out(row: JobRow, now: datetime) -> bool:
    return row.state == JobState.RUNNING and row.lease_until is not None and row.lease_until < now


def _requeue_or_end(session: Session, row: JobRow, why: EventType) -> None:
    """The running job (locked) has no worker any more."""
    if row.cancel_requested:
        end(session, row, JobState.CANCELLED, None)
    elif row.attempts >= row.max_attempts or row.measured_job_id is not None:
        # What a job pays for a figure elsewhere is nobody else's to take up.
        end(session, row, JobState.FAILED, dict(WORKER_LOST))
    else:
        row.state = JobState.PAUSED if row.pause_requested else JobState.QUEUED
        row.lease_owner, row.lease_until = None, None
        events.record(session, row, EventType.PAUSED if row.pause_requested else why)


def _held(session: Session, lease: Lease) -> JobRow:
    """The job's row under its own lock, without that of its account: no budget changes.

    Raises:
        StaleLease: Another worker holds the job, or it has ended.
        NotFound: No such job.
    """
    row = ledger.job_row(session, lease.job_id, lock=True)
    ledger.check_lease(row, lease.token)
    return row
