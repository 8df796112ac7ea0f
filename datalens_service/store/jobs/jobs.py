"""Jobs: what was asked, in which state it is, and how it is cancelled. Running them is `leases.py`.

             ┌────────────────────── f ──────────────────────┐
             ▼                                               │
    ──▶ queued ──────── a ───────▶ running ──┬── b ──▶ succeeded
         │ ▲ │                       ▲ │ │   ├── c ──▶ failed
         h j │                       └g┘ i   └── e ──▶ cancelled
         ▼ │ │                           ▼
        paused ◀─────────────────────────┘
             └─────────────── d ────────────────────────▶ cancelled

    a  a worker claimed it and holds a lease
    b  images, generator and proof are stored; the rest of the reservation returned. Evaluation goes on behind them,
       and whatever ends it from then on (an error, a cancel request, a lost worker), the job has succeeded
    c  an error ended it, or the last allowed worker was lost; the steps made stay charged
    d  cancelled while no worker held it; the rest of the reservation returned
    e  the cancel request was seen between two steps; the steps made stay charged
    f  the worker gave it back or was lost; stored steps are kept, the next worker replays them
    g  the lease ran out and another worker took it over with a higher token
    h  paused before a worker claimed it; the reservation stays
    i  the wish to pause was seen between two steps, or the worker was lost; reservation and checkpoint stay
    j  resumed; the next worker replays what is stored

The database is the truth; a message to a worker carries the id and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Row, bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from datalens_service.base.clock import to_second
from datalens_service.base.errors import NotFound, StateConflict
from datalens_service.methods import Plan
from datalens_service.proof.spenders import Actor
from datalens_service.store.access import quotas
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs import events, released_models
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.idempotency import earlier_job, key_conflict, request_fingerprint, scope_key
from datalens_service.store.jobs.job_filter import JobFilter
from datalens_service.store.jobs.released_models import Approval
from datalens_service.store.ledger import aggregates, ledger
from datalens_service.store.ledger.recovery import check_log, in_step_with_log
from datalens_service.store.paging import StoredPage, list_page
from datalens_service.store.rows import copy_row, get_or_refuse
from datalens_service.store.schema.tables import (
    DEFAULT_PRIORITY,
    JOB_FORMAT,
    AccountRow,
    DatasetRow,
    JobRow,
    ReservationRow,
)

DEFAULT_MAX_ATTEMPTS = 3
SELECT_JOBS: Final = select(
    *(column for column in JobRow.__table__.columns if column.name != "plan"),
    JobRow.submitter_name.label("submitter_name"),
    ReservationRow.reserved_units,
    ReservationRow.charged_units,
).join(ReservationRow, ReservationRow.owner_id == JobRow.id)
"""Statement of plain columns, for whoever only reads jobs: at a third of what objects that can be changed cost."""
_BY_ID: Final = SELECT_JOBS.where(JobRow.id == bindparam("job_id"))
_ALL: Final = JobFilter()


class JobState(StrEnum):
    """The state of a job; the arrows are drawn at the top of this module."""

    QUEUED = "queued"
    """Accepted, its budget reserved, waiting for a worker."""
    RUNNING = "running"
    """A worker holds its lease."""
    PAUSED = "paused"
    """No worker holds it until it is resumed; reservation and checkpoint stay."""
    SUCCEEDED = "succeeded"
    """Images, generator, proof and report are there."""
    FAILED = "failed"
    """The error is on the job; what was charged stays charged."""
    CANCELLED = "cancelled"
    """Stopped on request; what was charged stays charged."""

    @property
    def terminal(self) -> bool:
        """Return True if the job has ended."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class Progress:
    """Progress of a running job, in public numbers.

    Attributes:
        start: `value` when this worker began the phase.
        started_at: Time of that start; None while no worker has begun.
    """

    phase: str | None
    value: int
    maximum: int
    start: int = 0
    started_at: datetime | None = None

    @property
    def share(self) -> float:
        """Return the share that this worker has done of the steps that it found undone in this phase."""
        undone = self.maximum - self.start
        return (self.value - self.start) / undone if undone > 0 else 0.0


@dataclass(frozen=True)
class Job:
    """A job as it was when it was read."""

    id: str
    tenant_id: str
    dataset_id: str
    state: JobState
    spec: dict[str, Any]
    result: str | None
    price: dict[str, Any]
    reserved_units: int
    charged_units: int
    lease_token: int
    attempts: int
    cancel_requested: bool
    pause_requested: bool
    progress: Progress
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    queue: str | None = None
    priority: int = DEFAULT_PRIORITY
    released_at: datetime | None = None
    results_removed_at: datetime | None = None
    is_audit: bool = False
    name: str = ""
    tags: tuple[str, ...] = ()
    notes: str = ""
    format: int = JOB_FORMAT
    lease_until: datetime | None = None
    submitted_by: Actor | None = None
    approval: Approval | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None
    decision_reason: str | None = None

    @property
    def is_held(self) -> bool:
        """Return True if its result waits for a second person, or was withheld."""
        return self.approval not in (None, Approval.RELEASED)

    def is_silent(self, now: datetime) -> bool:
        """Return True if the worker that holds the job has not renewed its lease.

        Args:
            now: By the clock of the database.
        """
        return self.state is JobState.RUNNING and self.lease_until is not None and self.lease_until < to_second(now)

    @classmethod
    def from_row(cls, row: JobRow | Row[*tuple[Any, ...]]) -> Job:
        """A copy of the row, or of one of `SELECT_JOBS`."""
        progress = Progress(row.phase, row.progress_value, row.progress_maximum, row.phase_start, row.phase_started_at)
        submitter = read_submitter(row)
        approval = None if row.approval is None else Approval(row.approval)
        given = {"state": JobState(row.state), "progress": progress, "tags": tuple(row.tags), "approval": approval}
        return copy_row(cls, row, **given, submitted_by=submitter)


def read_submitter(row: JobRow | Row[*tuple[Any, ...]]) -> Actor | None:
    """Return who submitted a job; None where that was not recorded."""
    return None if row.submitted_by is None else Actor(id=row.submitted_by, name=row.submitter_name)


def create(
    database: Database,
    *,
    dataset_id: str,
    spec: dict[str, Any],
    result: str,
    price: dict[str, Any],
    plan: Plan,
    ledger_units: int,
    submitted_by: str,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    idempotency_key: str | None = None,
    queue: str | None = None,
    priority: int = DEFAULT_PRIORITY,
    name: str = "",
    needs_approval: bool = False,
) -> Job:
    """Accept a job and reserve its budget, both or neither.

    Args:
        needs_approval: True if a second person decides about its result.
        ledger_units: Ledger units of the whole plan; its slack is that of `plan`.
        submitted_by: Id of the key or person, as the audit journal names them.
    """
    # The same spec without approval is another request.
    fingerprint = request_fingerprint(dataset_id, {**spec, "needs_approval": True} if needs_approval else spec)

    def submit(session: Session) -> Job:
        dataset, account = lock_dataset(session, dataset_id)
        key = scope_key(idempotency_key, dataset.tenant_id)
        if (known := earlier_job(session, key, fingerprint)) is not None:
            return Job.from_row(known)
        if dataset.state != "ready":
            raise StateConflict("The data set was deleted; upload it again to train on it.")
        check_log(database, account)
        quotas.check_jobs(session, dataset.tenant_id)
        now = read_database_clock(session)
        row = new_row(dataset, "job", spec=spec, state=JobState.QUEUED, request_fingerprint=fingerprint, created_at=now)
        row.result, row.price, row.plan = result, price, plan.model_dump(mode="json")
        row.max_attempts, row.idempotency_key, row.queue = max_attempts, key, queue
        row.priority, row.name = priority, name
        row.submitted_by, row.approval = submitted_by, Approval.WAITING if needs_approval else None
        session.add(row)
        session.flush()
        ledger.reserve(session, account, row, ledger_units, plan.slack)
        events.record(session, row, EventType.CREATED)
        return Job.from_row(row)

    try:
        return in_step_with_log(database, submit)
    except IntegrityError as error:
        # Only the key can clash: two first uses at once, on data sets of different accounts.
        raise key_conflict() from error


def get(database: Database, job_id: str) -> Job:
    with database.connection() as connection:
        row = connection.execute(_BY_ID, {"job_id": job_id}).one_or_none()
    if row is None:
        raise NotFound("There is no such job.")
    return Job.from_row(row)


def get_all(database: Database, job_ids: Iterable[str]) -> dict[str, Job]:
    """Return jobs by their ids."""
    with database.connection() as connection:
        return {row.id: Job.from_row(row) for row in connection.execute(SELECT_JOBS.where(JobRow.id.in_(job_ids)))}


def get_plan(database: Database, job_id: str) -> Plan | None:
    """Return what the job's budget was reserved for; None for a job from before plans were stored."""
    with database.session() as session:
        stored = ledger.job_row(session, job_id).plan
    return None if stored is None else Plan.model_validate(stored)


def list_jobs(
    database: Database, which: JobFilter = _ALL, *, limit: int = 50, cursor: str | None = None
) -> StoredPage[Job]:
    """Jobs, newest first, without what they paid for figures elsewhere (`measurements.py`) and audits (`audits.py`)."""
    query = which.applied_to(SELECT_JOBS.where(JobRow.measured_job_id.is_(None), ~JobRow.is_audit))
    with database.connection() as connection:
        return list_page(connection, query, (JobRow.created_at, JobRow.id), Job.from_row, limit, cursor)


def request_cancel(database: Database, job_id: str) -> Job:
    """Cancel a queued or paused job at once (d), or ask the worker of a running one to stop between two steps.

    A job whose images are ready keeps them: only its evaluation stops, and it ends as succeeded.

    Raises:
        StateConflict: The job has ended.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if JobState(row.state).terminal:
            raise StateConflict(f"The job has ended already: {row.state}.")
        row.cancel_requested = True
        if row.state == JobState.RUNNING:
            events.record(session, row, EventType.CANCEL_REQUESTED)
        else:
            end(session, row, JobState.CANCELLED, None)
        return Job.from_row(row)


def request_pause(database: Database, job_id: str) -> Job:
    """Pause a queued job at once (h), or ask the worker of a running one to stop between two steps (i). Repeatable.

    Neither this nor `resume` changes what the job reserved, charged or stored.

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


def end(session: Session, row: JobRow, state: JobState, error: dict[str, Any] | None) -> None:
    """Give a job (locked) its last state and settle its account, in the caller's transaction.

    What was released stays released: from then on a job succeeds, whatever ended its evaluation. Iterates that it kept
    are in a file by then, or the job has no result that they belong to.
    """
    if row.released_at is not None:
        state, error = JobState.SUCCEEDED, None
    ledger.settle(session, row.id)
    aggregates.discard_iterates(session, row.id)
    row.state = state
    row.error = error
    row.finished_at = read_database_clock(session)
    row.lease_owner = None
    row.lease_until = None
    if state == JobState.SUCCEEDED:
        mark_model_ready(session, row)
    events.record(session, row, EventType(f"job.{state}"))


def mark_model_ready(session: Session, row: JobRow) -> None:
    """Note that the model of a job (locked) is ready, if it is not noted yet; it may go on being evaluated."""
    # A payment for a figure of another job makes no model, and an audit keeps none.
    if row.released_at is not None or row.measured_job_id is not None or row.result is None:
        return
    row.released_at = read_database_clock(session).replace(microsecond=0)
    released_models.add_made(session, row, row.result)


def lock_dataset(session: Session, dataset_id: str) -> tuple[DatasetRow, AccountRow]:
    """A dataset as it is under the lock of its account, which a deletion takes: with open jobs it is not deleted."""
    dataset = get_or_refuse(session, DatasetRow, dataset_id, "data set")
    account = ledger.lock_account(session, dataset.account_id)
    # Read again: it may have been deleted while this transaction waited for the account.
    session.refresh(dataset)
    return dataset, account


def new_row(dataset: DatasetRow, prefix: str, owner_kind: str = "job", **columns: Any) -> JobRow:
    """A row about a dataset, with an empty reservation for its account.

    Args:
        owner_kind: "job" or "measurement".
    """
    job_id = f"{prefix}_{uuid4().hex}"
    return JobRow(
        id=job_id,
        reservation=ledger.new_reservation(job_id, dataset.account_id, owner_kind),
        tenant_id=dataset.tenant_id,
        account_id=dataset.account_id,
        dataset_id=dataset.id,
        **columns,
    )
