"""Audits: attacks for the owner of a data set, run by the workers that run jobs.

An audit is a row of `jobs`: it waits in the same queue under the same leases, and is cancelled and taken up again in
the same way. It releases nothing, so it reserves nothing: its reservation is empty and settled from the start, and a
charge to it is refused. No event, webhook, bundle or report on a job tells of it; what it found is in a table of its
own, for the owner alone, and goes with the data.
"""

import base64
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, or_, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from datalens_service.base.errors import NotFound, StateConflict
from datalens_service.store.access import quotas
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs.idempotency import earlier_job, key_conflict, request_fingerprint, scope_key
from datalens_service.store.jobs.jobs import DEFAULT_MAX_ATTEMPTS, SELECT_JOBS, Job, JobState, lock_dataset, new_row
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger import ledger
from datalens_service.store.paging import StoredPage, list_page
from datalens_service.store.schema.tables import DatasetRow, JobRow, PrivacyAuditRow

_PICTURE: Final = "picture"


@dataclass(frozen=True)
class StoredAudit:
    """An audit as it was when it was read.

    Attributes:
        attacked_job_id: The job whose model it attacks; None of a rehearsal.
        result: Private: what attacks found; None before its end, and once the data set was deleted.
        picture: Private: PNG with records and what inversion made of their gradients; None without one.
    """

    job: Job
    attacked_job_id: str | None
    result: dict[str, Any] | None
    picture: bytes | None = None

    def __repr__(self) -> str:
        return f"StoredAudit({self.job.id}, {self.job.state})"


def create(
    database: Database,
    *,
    dataset_id: str,
    request: dict[str, Any],
    submitted_by: str,
    attacked_job_id: str | None = None,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    idempotency_key: str | None = None,
    queue: str | None = None,
) -> StoredAudit:
    """Accept an audit. Nothing is reserved, because nothing is released."""
    fingerprint = request_fingerprint(dataset_id, {"audit": request})

    def submit(session: Session) -> StoredAudit:
        dataset, _ = lock_dataset(session, dataset_id)
        if dataset.state != "ready":
            raise StateConflict("The data set was deleted; upload it again to audit it.")
        key = scope_key(idempotency_key, dataset.tenant_id)
        if (known := earlier_job(session, key, fingerprint)) is not None:
            return _read(session, known)
        quotas.check_jobs(session, dataset.tenant_id)
        row = _new_row(session, dataset, request, fingerprint)
        row.max_attempts, row.idempotency_key, row.queue = max_attempts, key, queue
        row.submitted_by = submitted_by
        session.add(row)
        session.flush()
        session.add(PrivacyAuditRow(job_id=row.id, attacked_job_id=attacked_job_id, result=None))
        session.flush()
        return _read(session, row)

    try:
        with database.transaction() as session:
            return submit(session)
    except IntegrityError as error:
        # Only the key can clash: two first uses at once.
        raise key_conflict() from error


def get(database: Database, audit_id: str) -> StoredAudit:
    """Return an audit, for the owner alone."""
    with database.session() as session:
        row = session.get(JobRow, audit_id)
        if row is None or not row.is_audit:
            raise NotFound("There is no such audit.")
        return _read(session, row)


def list_audits(
    database: Database,
    tenant_id: str,
    *,
    limit: int = 50,
    cursor: str | None = None,
    dataset_id: str | None = None,
    attacked_job_id: str | None = None,
) -> StoredPage[StoredAudit]:
    """Audits of a tenant, newest first, for the owner alone."""
    query = SELECT_JOBS.where(JobRow.is_audit, JobRow.tenant_id == tenant_id)
    if dataset_id is not None:
        query = query.where(JobRow.dataset_id == dataset_id)
    if attacked_job_id is not None:
        of_job = select(PrivacyAuditRow.job_id).where(PrivacyAuditRow.attacked_job_id == attacked_job_id)
        query = query.where(JobRow.id.in_(of_job))
    with database.session() as session:
        return list_page(session, query, (JobRow.created_at, JobRow.id), lambda row: _read(session, row), limit, cursor)


def store_result(database: Database, lease: Lease, result: dict[str, Any], picture: bytes | None = None) -> None:
    """Note what an audit found; repeatable.

    Args:
        picture: PNG. It lies with the figures, so that it is deleted with them.
    """
    with database.transaction() as session:
        row = ledger.job_row(session, lease.job_id, lock=True)
        ledger.check_lease(row, lease.token)
        encoded = {} if picture is None else {_PICTURE: base64.b64encode(picture).decode()}
        session.get_one(PrivacyAuditRow, row.id).result = {**result, **encoded}


def list_about(database: Database, dataset_id: str, attacked_job_id: str) -> tuple[StoredAudit, ...]:
    """Audits of the model of a job, and all others on its records, oldest first. For the owner alone."""
    about = or_(PrivacyAuditRow.attacked_job_id == attacked_job_id, PrivacyAuditRow.attacked_job_id.is_(None))
    query = SELECT_JOBS.join(PrivacyAuditRow, PrivacyAuditRow.job_id == JobRow.id)
    query = query.where(JobRow.is_audit, JobRow.dataset_id == dataset_id, about)
    with database.session() as session:
        rows = session.execute(query.order_by(JobRow.created_at, JobRow.id)).all()
        return tuple(_read(session, row) for row in rows)


def _read(session: Session, row: JobRow | Row[*tuple[Any, ...]]) -> StoredAudit:
    audit = session.get_one(PrivacyAuditRow, row.id)
    if audit.result is None:
        return StoredAudit(Job.from_row(row), audit.attacked_job_id, None)
    figures = {key: value for key, value in audit.result.items() if key != _PICTURE}
    encoded = audit.result.get(_PICTURE)
    picture = None if encoded is None else base64.b64decode(encoded)
    return StoredAudit(Job.from_row(row), audit.attacked_job_id, figures, picture)


def _new_row(session: Session, dataset: DatasetRow, request: dict[str, Any], fingerprint: str) -> JobRow:
    now = read_database_clock(session)
    row = new_row(dataset, "aud", spec=request, state=JobState.QUEUED, request_fingerprint=fingerprint, created_at=now)
    row.reservation.settled, row.price, row.is_audit = True, {}, True
    return row
