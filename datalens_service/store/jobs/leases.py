"""Leases of jobs: claim, renew, report, finish, give back, and what happens to the jobs of lost workers.

Letters in parentheses are the transitions that `jobs.py` draws.

A lease carries a token that grows with every claim. Whatever a worker writes names its token, so a worker that
was stopped, declared lost and woken again is refused (`StaleLease`) however late it comes. A clock decides only when
a silent worker may be replaced, never who may write, and it is the database's: clocks of workers take no part.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Self, TypeVar

from sqlalchemy import ColumnElement, Select, Subquery, func, or_, select, true
from sqlalchemy.orm import Session, aliased

from datalens_service.base.errors import InvalidInput
from datalens_service.base.progress import Phase
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs import events, jobs
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.jobs import Job, JobState, end
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.tables import JOB_FORMAT, JobRow

WORKER_LOST = {
    "type": "worker-lost",
    "title": "The worker was lost",
    "detail": "The worker process died repeatedly without an error, most likely out of memory. Free memory and "
    "submit the job again. What was charged stays charged.",
}

RENEWALS: Final = 3
"""Number of renewals before a lease would run out."""


@dataclass(frozen=True)
class Lease:
    """The right to run a job.

    Attributes:
        token: Fencing token; goes with every write.
        seconds: For how long a claim or renewal holds.
        until: Its end, unless it is renewed.
    """

    job_id: str
    token: int
    owner: str
    seconds: float
    until: datetime


class Requests(NamedTuple):
    """Requests to a running job."""

    cancel: bool
    pause: bool

    @classmethod
    def from_row(cls, row: JobRow) -> Self:
        return cls(row.cancel_requested, row.pause_requested)


def claim(
    database: Database, job_id: str, owner: str, lease_seconds: float, *, now: datetime | None = None
) -> Lease | None:
    """Take a queued job (a), or one whose lease ran out (g).

    Returns:
        The lease; None if another worker holds the job, it just ended, or a newer version submitted it.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        now = now or read_database_clock(session)
        if _ran_out(row, now):
            _requeue_or_end(session, row, EventType.LEASE_LOST)
        if row.state != JobState.QUEUED or row.format > JOB_FORMAT:
            return None
        return _grant(session, row, owner, lease_seconds, now)


def claim_next(
    database: Database, owner: str, lease_seconds: float, *, queue: str | None = None, now: datetime | None = None
) -> Lease | None:
    """Take the job that is next (a; see `select_waiting`). Jobs of lost workers wait again after `expire_leases`.

    No two workers take one job: PostgreSQL locks its row, and whoever looks meanwhile gets the next one; SQLite lets
    one look after the other. The account is not locked, because no budget changes.

    Returns:
        The lease; None if no job waits.
    """
    if not next_queued(database, 1, queue):
        # Without the write lock of SQLite: idle workers ask often.
        return None
    with database.transaction() as session:
        first = select_waiting(select(JobRow), queue).limit(1).with_for_update(skip_locked=True, of=JobRow)
        row = session.scalars(first).one_or_none()
        if row is None:
            return None
        return _grant(session, row, owner, lease_seconds, now or read_database_clock(session))


def adopt(database: Database, job_id: str, token: int, owner: str, lease_seconds: float) -> Lease:
    """Continue under a lease that was claimed for this process."""
    with database.transaction() as session:
        until = read_database_clock(session) + timedelta(seconds=lease_seconds)
        lease = Lease(job_id, token, owner, lease_seconds, until)
        row = _held(session, lease)
        row.lease_owner, row.lease_until = owner, until
        return lease


def renew(database: Database, lease: Lease, *, now: datetime | None = None) -> Lease:
    """Hold the job for another `lease.seconds`."""
    with database.transaction() as session:
        row = _held(session, lease)
        until = (now or read_database_clock(session)) + timedelta(seconds=lease.seconds)
        row.lease_until = until
    return replace(lease, until=until)


def was_lost(database: Database, lease: Lease) -> bool:
    """Return True if somebody else may have ended the lease: the job was claimed again, or `lease.until` has passed.

    A lease that can no longer be renewed and was not lost ended with its job, by its own holder.
    """
    with database.session() as session:
        token = session.scalar(select(JobRow.lease_token).where(JobRow.id == lease.job_id))
        return token != lease.token or lease.until < read_database_clock(session)


def progress(database: Database, lease: Lease, phase: Phase, value: int, maximum: int) -> Requests:
    """Say how far the job is, and hear what is asked of it meanwhile.

    Public numbers only: never a loss, a count or a time of the private set.
    """
    with database.transaction() as session:
        row = _held(session, lease)
        news = events.worth_telling(row, phase, value, maximum)
        if row.phase != phase or row.phase_started_at is None:
            row.phase_started_at, row.phase_start = read_database_clock(session), value
        row.phase, row.progress_value, row.progress_maximum = phase, value, maximum
        if news:
            events.record(session, row, EventType.PROGRESS)
        return Requests.from_row(row)


def read_requests(database: Database, job_id: str) -> Requests:
    query = select(JobRow.cancel_requested, JobRow.pause_requested).where(JobRow.id == job_id)
    with database.session() as session:
        return Requests(*session.execute(query).one())


def mark_released(database: Database, lease: Lease, kind: str) -> None:
    """Say that everything is stored that the job was paid for; its evaluation may go on. Repeatable."""
    with locked(database, lease) as (session, row):
        if row.released_at is None:
            row.result = kind
            jobs.mark_model_ready(session, row)
            events.record(session, row, EventType.RELEASED)


def finish(database: Database, lease: Lease, state: JobState, error: dict[str, Any] | None = None) -> Job:
    """End the job (b, c or e; always b once its images are ready) and return what it did not spend, in one transaction.

    Raises:
        InvalidInput: `state` is not a last state.
    """
    if not state.terminal:
        raise InvalidInput(f"A job does not end as {state}.")
    with locked(database, lease) as (session, row):
        end(session, row, state, error)
        return Job.from_row(row)


def give_back(database: Database, lease: Lease) -> Job:
    """Give the job back (f, i), for example when the worker is asked to shut down; not an attempt."""
    with locked(database, lease) as (session, row):
        give_back_locked(session, row)
        return Job.from_row(row)


def lose(database: Database, lease: Lease, memory: str = "") -> None:
    """Say that the process that held the job is dead: its start counts, and the job waits again or fails (c).

    Args:
        memory: A sentence for a job that fails: what it needs and what its worker has.
    """
    with locked(database, lease) as (session, row):
        _requeue_or_end(session, row, EventType.LEASE_LOST, memory)


def give_back_locked(session: Session, row: JobRow) -> None:
    """Give back the lease of a running job within a caller's transaction (locked), as `give_back` does."""
    row.attempts = max(0, row.attempts - 1)
    _requeue_or_end(session, row, EventType.REQUEUED)


@contextmanager
def locked(database: Database, lease: Lease) -> Generator[tuple[Session, JobRow]]:
    """A transaction on the job's row, locked after its account: until it ends, nobody charges, stores or ends the job.

    Raises:
        StaleLease: Another worker holds the job, or it has ended.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, lease.job_id)
        ledger.check_lease(row, lease.token)
        yield session, row


def list_silent(database: Database, *, now: datetime | None = None) -> tuple[str, ...]:
    """Ids of the jobs whose leases have run out."""
    with database.session() as session:
        silent = JobRow.lease_until < (now or read_database_clock(session))
        query = select(JobRow.id).where(JobRow.state == JobState.RUNNING, silent)
        return tuple(session.scalars(query.order_by(JobRow.id)))


def expire_leases(
    database: Database, job_ids: Iterable[str] | None = None, *, now: datetime | None = None
) -> tuple[Job, ...]:
    """Put jobs of lost workers back (f, i); end those cancelled (e) or lost too often (c); what changed.

    Args:
        job_ids: Ids of jobs; None: all with a lease that ran out.
    """
    job_ids = list_silent(database, now=now) if job_ids is None else job_ids
    changed = (_expire(database, job_id, now) for job_id in job_ids)
    return tuple(job for job in changed if job is not None)


def next_queued(database: Database, limit: int = 1, queue: str | None = None) -> tuple[str, ...]:
    """Ids of the jobs that are next, in their order."""
    with database.session() as session:
        return tuple(session.scalars(select_waiting(select(JobRow.id), queue).limit(limit)))


def list_running(database: Database) -> tuple[str, ...]:
    """Ids of what worker processes run now: jobs and audits, not what a job pays for a figure elsewhere."""
    running = select(JobRow.id).where(JobRow.state == JobState.RUNNING, JobRow.measured_job_id.is_(None))
    with database.session() as session:
        return tuple(session.scalars(running.order_by(JobRow.id)))


def _grant(session: Session, row: JobRow, owner: str, lease_seconds: float, now: datetime) -> Lease:
    """The queued job (locked) is this worker's."""
    until = now + timedelta(seconds=lease_seconds)
    row.state = JobState.RUNNING
    row.lease_token += 1
    row.attempts += 1
    row.lease_owner, row.lease_until = owner, until
    row.started_at = row.started_at or now
    row.phase_started_at = None
    events.record(session, row, EventType.STARTED)
    return Lease(row.id, row.lease_token, owner, lease_seconds, until)


def _expire(database: Database, job_id: str, now: datetime | None) -> Job | None:
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if not _ran_out(row, now or read_database_clock(session)):
            return None
        _requeue_or_end(session, row, EventType.LEASE_LOST)
        return Job.from_row(row)


def _ran_out(row: JobRow, now: datetime) -> bool:
    return row.state == JobState.RUNNING and row.lease_until is not None and row.lease_until < now


def _requeue_or_end(session: Session, row: JobRow, why: EventType, memory: str = "") -> None:
    """Send a running job (locked) that lost its worker back to the queue, or end it."""
    if row.cancel_requested:
        end(session, row, JobState.CANCELLED, None)
    elif row.attempts >= row.max_attempts or row.measured_job_id is not None:
        # A payment for a figure of another job can be taken up by that job alone.
        end(session, row, JobState.FAILED, {**WORKER_LOST, "detail": f"{WORKER_LOST['detail']} {memory}".rstrip()})
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


T = TypeVar("T")


def select_waiting(query: Select[T], queue: str | None) -> Select[T]:
    """Jobs that wait for a worker of this kind and version, the next one in front. Public facts alone decide.

    The highest priority comes first; then the tenant with the fewest jobs running on this kind of worker, so that
    nobody waits behind all jobs of another; then the job that was submitted first. Workers that ask at the same instant
    see the same shares, which can then be off by as many jobs until the next claim.
    """
    running = _count_running(queue)
    waiting = query.outerjoin(running, running.c.tenant_id == JobRow.tenant_id)
    waiting = waiting.where(JobRow.state == "queued", JobRow.format <= JOB_FORMAT, _is_in(JobRow, queue))
    share = func.coalesce(running.c.jobs, 0)
    return waiting.order_by(JobRow.priority.desc(), share, JobRow.created_at, JobRow.id)


def _count_running(queue: str | None) -> Subquery:
    """Jobs and audits that workers of this kind run, by tenant; not what a job pays for a figure elsewhere."""
    running = aliased(JobRow)
    query = select(running.tenant_id, func.count().label("jobs"))
    query = query.where(running.state == "running", running.measured_job_id.is_(None), _is_in(running, queue))
    return query.group_by(running.tenant_id).subquery()


def _is_in(job: type[JobRow], queue: str | None) -> ColumnElement[bool]:
    return true() if queue is None else or_(job.queue.is_(None), job.queue == queue)
