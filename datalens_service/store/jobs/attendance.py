"""Knows which workers are alive: each notes it every few seconds, by the clock of the database.

A process that was started for one job alone (`workers/run_job.py`) notes nothing; the lease of its job says that it is
alive.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.service_tables import WorkerRow
from datalens_service.store.schema.tables import JobRow

REPORT_SECONDS: Final = 5.0
"""Seconds between two notes of a worker that it is alive."""
ALIVE: Final = timedelta(seconds=30)
"""Silence after which it counts as dead: it waits for a lock of the database for five seconds at most."""
_KEPT: Final = timedelta(days=1)
# Statements of columns, made once: whoever follows a job that waits asks for them with every poll.
_WORKERS: Final = select(WorkerRow.__table__).order_by(WorkerRow.id)
_BUSY: Final = (
    select(JobRow.queue).where(JobRow.state == JobState.RUNNING, JobRow.lease_until >= bindparam("now")).distinct()
)


@dataclass(frozen=True)
class Worker:
    """A loop that takes jobs, as it last said of itself.

    Attributes:
        queue: Queue whose jobs it takes; None takes all.
        gpu: True if jobs can train on a GPU there; None while it does not know.
        trouble: The reason why it takes no job, for its reader's voice; None where it could.
        ended: True if it was stopped, and said so.
    """

    id: str
    queue: str | None = None
    gpu: bool | None = None
    trouble: str | None = None
    ended: bool = False

    def serves(self, queue: str | None) -> bool:
        """Return True if it takes jobs of that queue."""
        return self.queue is None or queue is None or self.queue == queue


@dataclass(frozen=True)
class Attendance:
    """The workers that were alive at one moment.

    Attributes:
        now: By the clock of the database.
        workers: All that are known, with the time when each was last heard.
        busy: Queues with a job that a worker does now.
    """

    now: datetime
    workers: tuple[tuple[Worker, datetime], ...] = ()
    busy: frozenset[str | None] = frozenset()

    def alive(self, queue: str | None) -> tuple[Worker, ...]:
        """Return the workers that take jobs of a queue and were heard lately."""
        return tuple(worker for worker, at in self.workers if worker.serves(queue) and _lives(worker, self.now - at))

    def last_seen(self, queue: str | None) -> datetime | None:
        """Return when a worker that takes jobs of a queue was last heard; None if there never was one."""
        return max((at for worker, at in self.workers if worker.serves(queue)), default=None)


def report(database: Database, worker: Worker) -> None:
    """Note that a worker is alive, or that it has ended."""
    with database.transaction() as session:
        now = read_database_clock(session)
        row = session.get(WorkerRow, worker.id)
        if row is None:
            _forget_old(session, now)
            row = WorkerRow(id=worker.id)
            session.add(row)
        row.queue, row.gpu, row.trouble, row.ended = worker.queue, worker.gpu, worker.trouble, worker.ended
        row.seen_at = now


def read_attendance(database: Database) -> Attendance:
    """Read which workers are alive now."""
    with database.connection() as connection:
        now = read_database_clock(connection)
        rows = connection.execute(_WORKERS)
        workers = tuple((Worker(row.id, row.queue, row.gpu, row.trouble, row.ended), row.seen_at) for row in rows)
        return Attendance(now, workers, frozenset(connection.scalars(_BUSY, {"now": now})))


def list_waiting_queues(database: Database) -> frozenset[str | None]:
    waiting = select(JobRow.queue).where(JobRow.state == JobState.QUEUED).distinct()
    with database.session() as session:
        return frozenset(session.scalars(waiting))


def _lives(worker: Worker, silent: timedelta) -> bool:
    return not worker.ended and silent < ALIVE


def _forget_old(session: Session, now: datetime) -> None:
    """Forget workers of earlier days, but for the last of each queue, which says since when there is none."""
    old = select(WorkerRow).where(WorkerRow.seen_at < now - _KEPT).order_by(WorkerRow.seen_at.desc())
    kept: set[str | None] = set()
    for row in session.scalars(old).all():
        if row.queue in kept:
            session.delete(row)
        kept.add(row.queue)
