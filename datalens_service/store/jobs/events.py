"""Events of a job, in public numbers: its states, its progress, and what it had charged by then.

Every event is written in the transaction of what it tells, under the lock of the job's row, so numbers have no gaps
and nobody learns of a change that did not happen. Progress is told when a phase begins or ends and at every percent.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import cast

from sqlalchemy import Row, Table, insert, or_, select
from sqlalchemy.orm import Session

from datalens_service.base.audience import Public, public_part
from datalens_service.base.clock import to_minute, to_second
from datalens_service.base.fields import copied
from datalens_service.base.progress import Phase
from datalens_service.store.access import webhooks
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.paging import MAXIMUM_LIMIT, check_limit
from datalens_service.store.schema.service_tables import JobEventRow
from datalens_service.store.schema.tables import JobRow

_ADD_EVENT = insert(cast(Table, JobEventRow.__table__))


class EventType(StrEnum):
    CREATED = "job.created"
    """Accepted, its budget reserved."""
    STARTED = "job.started"
    """A worker holds its lease."""
    PROGRESS = "job.progress"
    """A phase began, ended or came a percent further."""
    RELEASED = "job.released"
    """Images, generator and proof can be downloaded; the evaluation may still go on."""
    PAUSE_REQUESTED = "job.pause_requested"
    """Somebody asked for a pause; the worker looks between two steps."""
    PAUSED = "job.paused"
    """No worker holds it; reservation and checkpoint stay."""
    RESUMED = "job.resumed"
    """It waits for a worker again, or its pause was called off."""
    CANCEL_REQUESTED = "job.cancel_requested"
    """Somebody asked for its end; the worker looks between two steps."""
    REQUEUED = "job.requeued"
    """Its worker gave it back."""
    LEASE_LOST = "job.lease_lost"
    """Its worker was silent for too long; the job waits for another."""
    SUCCEEDED = "job.succeeded"
    """Generator, samples and report are there."""
    FAILED = "job.failed"
    """The error is on the job."""
    CANCELLED = "job.cancelled"
    """Stopped on request."""

    @property
    def last(self) -> bool:
        """Return True if no event follows this one."""
        return self in (EventType.SUCCEEDED, EventType.FAILED, EventType.CANCELLED)


@dataclass(frozen=True)
class Event:
    """An event of a job.

    Attributes:
        seq: Number within the job, from 1, without gaps.
        created_at: Not before that of the event before. To the second; of progress to the minute: finer times would
            tell how long steps on private records take.
    """

    seq: Public[int]
    type: Public[EventType]
    state: Public[str]
    phase: Public[str | None]
    value: Public[int]
    maximum: Public[int]
    charged_units: Public[int]
    created_at: Public[datetime]

    @classmethod
    def from_row(cls, row: JobEventRow) -> Event:
        """Return what anybody may see of the row."""
        return public_part(copied(cls, row, type=EventType(row.type)))


def record(session: Session, job: JobRow, kind: EventType) -> None:
    """Tell of a change of `job` (locked) in the transaction that makes it; call it after the change.

    Times never go back, although a clock may be set: an event that would come before the last one has its time.

    Of audits nothing is told: they are between the service and the owner.
    """
    if job.is_audit:
        return
    session.flush()
    now = read_database_clock(session)
    created_at = to_minute(now) if kind is EventType.PROGRESS else to_second(now)
    last = None if kind is EventType.CREATED else _last(session, job)
    if last is not None:
        created_at = max(created_at, last.created_at)
    values = {
        "job_id": job.id,
        "seq": 1 if last is None else last.seq + 1,
        "type": kind,
        "state": job.state,
        "phase": job.phase,
        "value": job.progress_value,
        "maximum": job.progress_maximum,
        "charged_units": job.charged_units,
        "created_at": created_at,
    }
    session.connection().execute(_ADD_EVENT, values)
    if kind is not EventType.PROGRESS:
        webhooks.tell(session, job, kind, created_at)


def _last(session: Session, job: JobRow) -> Row[int, datetime] | None:
    """Number and time of the last event told."""
    query = select(JobEventRow.seq, JobEventRow.created_at).where(JobEventRow.job_id == job.id)
    return session.execute(query.order_by(JobEventRow.seq.desc()).limit(1)).first()


def list_events(database: Database, job_id: str, *, after: int = 0, limit: int = 100) -> tuple[Event, ...]:
    """Events of a job with a number above `after`, oldest first."""
    query = select(JobEventRow).where(JobEventRow.job_id == job_id, JobEventRow.seq > after)
    with database.session() as session:
        rows = session.scalars(query.order_by(JobEventRow.seq).limit(check_limit(limit)))
        return tuple(Event.from_row(row) for row in rows)


def list_milestones(database: Database, job_id: str) -> tuple[Event, ...]:
    """The first events of a job, oldest first, without progress inside of a phase."""
    turns = or_(
        JobEventRow.type != EventType.PROGRESS, JobEventRow.value == 0, JobEventRow.value >= JobEventRow.maximum
    )
    query = select(JobEventRow).where(JobEventRow.job_id == job_id, turns).order_by(JobEventRow.seq)
    with database.session() as session:
        return tuple(Event.from_row(row) for row in session.scalars(query.limit(MAXIMUM_LIMIT)))


def worth_telling(job: JobRow, phase: Phase, value: int, maximum: int) -> bool:
    """Return True if progress to `value` is news compared with what the row says."""
    if job.phase != phase or job.progress_maximum != maximum or value >= maximum:
        return (job.phase, job.progress_value, job.progress_maximum) != (phase, value, maximum)
    return 100 * value // maximum != 100 * job.progress_value // maximum
