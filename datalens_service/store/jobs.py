"""Jobs: what was asked, in which state it is, and how it is cancelled. Running them is `leases.py`.

             ┌────────────────────── f ──────────────────────┐
             ▼                                               │
    ──▶ queued ──────── a ───────▶ running ──┬── b ──▶ succeeded
             │                       ▲ │     ├── c ──▶ failed
             │                       └g┘     └── e ──▶ cancelled
             └─────────────── d ────────────────────────▶ cancelled

    a  a worker claimed it and holds a lease
    b  the generator is stored; the rest of the reservation returned
    c  an error ended it, or the last allowed worker was lost; the steps made stay charged
    d  cancelled before a worker claimed it; the reservation returned
    e  the cancel request was seen between two steps; the steps made stay charged
    f  the worker gave it back or was lost; stored steps are kept, the next worker replays them
    g  the lease ran out and another worker took it over with a higher token

The database is the truth; a message to a worker carries the id and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from datalens_service.errors import NotFound, StateConflict
from datalens_service.store import ledger
from datalens_service.store.chain import utc_now
from datalens_service.store.database import Database
from datalens_service.store.paging import Page, after, check_limit, cursor_of
from datalens_service.store.tables import DatasetRow, JobRow

DEFAULT_MAX_ATTEMPTS = 3


class JobState(StrEnum):
    """Where a job stands; the arrows are drawn at the top of this module."""

    QUEUED = "queued"
    """Accepted, its budget reserved, waiting for a worker."""
    RUNNING = "running"
    """A worker holds its lease."""
    SUCCEEDED = "succeeded"
    """Generator, report and card are there."""
    FAILED = "failed"
    """The error is on the job; what was charged stays charged."""
    CANCELLED = "cancelled"
    """Stopped on request; what was charged stays charged."""

    @property
    def terminal(self) -> bool:
        """Whether the job has ended."""
        return self in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class Progress:
    """How far a running job is, in public numbers."""

    phase: str | None
    value: int
    maximum: int


@dataclass(frozen=True)
class Job:
    """A job as it was when it was read."""

    id: str
    dataset_id: str
    state: JobState
    spec: dict[str, Any]
    plan: dict[str, Any]
    reserved_units: int
    charged_units: int
    lease_token: int
    attempts: int
    cancel_requested: bool
    progress: Progress
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, row: JobRow) -> Job:
        """A copy of the row."""
        return cls(
            id=row.id,
            dataset_id=row.dataset_id,
            state=JobState(row.state),
            spec=row.spec,
            plan=row.plan,
            reserved_units=row.reserved_units,
            charged_units=row.charged_units,
            lease_token=row.lease_token,
            attempts=row.attempts,
            cancel_requested=row.cancel_requested,
            progress=Progress(row.phase, row.progress_value, row.progress_maximum),
            error=row.error,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
        )


def create(
    database: Database,
    *,
    dataset_id: str,
    spec: dict[str, Any],
    plan: dict[str, Any],
    units: int,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    idempotency_key: str | None = None,
) -> Job:
    """Accept a job and reserve its budget, both or neither.

    Args:
        database: Where.
        dataset_id: The data set it trains on.
        spec: What was asked, as JSON.
        plan: What will be charged, as JSON.
        units: Ledger units of the whole plan.
        max_attempts: Lost workers in a row without a stored step before it fails.
        idempotency_key: Chosen by the client; the same key with the same request is the same job.

    Raises:
        BudgetExceeded: Less remains; nothing was kept.
        NotFound: No such data set.
        StateConflict: The data set was deleted, or the key belongs to another request.
        LedgerCorrupt: The account is frozen.
    """
    fingerprint = _request_fingerprint(dataset_id, spec)
    try:
        with database.transaction() as session:
            dataset = _dataset(session, dataset_id)
            account = ledger.lock_account(session, dataset.account_id)
            if (known := _same_key(session, idempotency_key, fingerprint)) is not None:
                return Job.of(known)
            _check_ready(session, dataset)
            row = _new_row(dataset, spec, plan, max_attempts, idempotency_key, fingerprint)
            session.add(row)
            ledger.reserve(session, account, row, units)
            return Job.of(row)
    except IntegrityError as error:
        # Only the key can clash: two first uses at once, on data sets of different accounts.
        raise _key_conflict() from error


def get(database: Database, job_id: str) -> Job:
    """One job.

    Raises:
        NotFound: No such job.
    """
    with database.session() as session:
        row = session.get(JobRow, job_id)
        if row is None:
            raise NotFound("There is no such job.")
        return Job.of(row)


def list_jobs(
    database: Database,
    *,
    limit: int = 50,
    cursor: str | None = None,
    dataset_id: str | None = None,
    state: JobState | None = None,
) -> Page[Job]:
    """Jobs, newest first.

    Raises:
        InvalidInput: `limit` or `cursor` is not usable.
    """
    query = select(JobRow).order_by(JobRow.created_at.desc(), JobRow.id.desc()).limit(check_limit(limit) + 1)
    if cursor is not None:
        query = query.where(after(cursor, JobRow.created_at, JobRow.id))
    if dataset_id is not None:
        query = query.where(JobRow.dataset_id == dataset_id)
    if state is not None:
        query = query.where(JobRow.state == state)
    with database.session() as session:
        rows = session.scalars(query).all()
    more = len(rows) > limit
    return Page(
        items=tuple(Job.of(row) for row in rows[:limit]),
        next_cursor=cursor_of(rows[limit - 1].created_at, rows[limit - 1].id) if more else None,
    )


def request_cancel(database: Database, job_id: str) -> Job:
    """Cancel a queued job at once (d), or ask the worker of a running one to stop between two steps.

    Raises:
        StateConflict: The job has ended.
        NotFound: No such job.
    """
    with database.transaction() as session:
        _, row = ledger.lock(session, job_id)
        if JobState(row.state).terminal:
            raise StateConflict(f"The job has ended already: {row.state}.")
        row.cancel_requested = True
        if row.state == JobState.QUEUED:
            end(session, row, JobState.CANCELLED, None)
        return Job.of(row)


def cancel_requested(database: Database, job_id: str) -> bool:
    """Whether somebody asked the job to stop.

    Raises:
        NotFound: No such job.
    """
    return get(database, job_id).cancel_requested


def end(session: Session, row: JobRow, state: JobState, error: dict[str, Any] | None) -> None:
    """Give a job (locked) its last state and settle its account, in the caller's transaction."""
    ledger.settle(session, row.id, None)
    row.state = state
    row.error = error
    row.finished_at = utc_now()
    row.lease_owner = None
    row.lease_until = None


def _dataset(session: Session, dataset_id: str) -> DatasetRow:
    row = session.get(DatasetRow, dataset_id)
    if row is None:
        raise NotFound("There is no such data set.")
    return row


def _check_ready(session: Session, dataset: DatasetRow) -> None:
    # Read again: it may have been deleted while this transaction waited for the account.
    session.refresh(dataset)
    if dataset.state != "ready":
        raise StateConflict("The data set was deleted; upload it again to train on it.")


def _same_key(session: Session, key: str | None, fingerprint: str) -> JobRow | None:
    if key is None:
        return None
    row = session.scalars(select(JobRow).where(JobRow.idempotency_key == key)).one_or_none()
    if row is not None and row.request_fingerprint != fingerprint:
        raise _key_conflict()
    return row


def _key_conflict() -> StateConflict:
    return StateConflict("This idempotency key belongs to another request; choose a new one.")


def _request_fingerprint(dataset_id: str, spec: dict[str, Any]) -> str:
    canonical = json.dumps([dataset_id, spec], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _new_row(
    dataset: DatasetRow,
    spec: dict[str, Any],
    plan: dict[str, Any],
    max_attempts: int,
    idempotency_key: str | None,
    fingerprint: str,
) -> JobRow:
    return JobRow(
        id=f"job_{uuid4().hex}",
        account_id=dataset.account_id,
        dataset_id=dataset.id,
        state=JobState.QUEUED,
        spec=spec,
        plan=plan,
        idempotency_key=idempotency_key,
        request_fingerprint=fingerprint,
        reserved_units=0,
        charged_units=0,
        settled=False,
        lease_token=0,
        attempts=0,
        max_attempts=max_attempts,
        cancel_requested=False,
        progress_value=0,
        progress_maximum=0,
        created_at=utc_now(),
    )
