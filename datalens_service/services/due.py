"""Lists what retention removes, and when: one list for the preview and for the removal.

Things are removed one by one, each with an entry in the journal. Lines (events, deliveries, entries of the journal) go
by whole days, all of a day with one entry.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, Delete, and_, delete, exists, func, or_, select
from sqlalchemy.orm import Session, aliased

from datalens_service.store.access.retention import Retention
from datalens_service.store.datasets import datasets, results
from datalens_service.store.schema.service_tables import AuditEntryRow, DeliveryRow, JobEventRow, ReleasedModelRow
from datalens_service.store.schema.tables import (
    AggregateRow,
    ApiKeyRow,
    ArtifactRow,
    DatasetRow,
    IntakeRow,
    JobRow,
    PrivacyAuditRow,
)

JOURNAL: Final = "journal"
"""The kind of lines whose chain goes on behind those that went."""


@dataclass(frozen=True)
class Due:
    """Something that retention removes.

    Attributes:
        kind: A member of `Retention`.
        object_id: Its id; None for lines.
        count: Number of lines that are old enough; 1 of a thing.
        at: Time at which it goes, or the oldest line.
        waits_for: Id of a job that has not ended and reads it; it goes once that has.
    """

    kind: str
    tenant_id: str
    object_id: str | None
    count: int
    at: datetime
    waits_for: str | None = None


def list_due(session: Session, tenant_id: str, policy: Retention, until: datetime) -> Iterator[Due]:
    """Yield what a policy removes in a tenant until an instant, things first, the oldest of each kind first."""
    for kind, queries in _things(tenant_id).items():
        days = getattr(policy, kind)
        if days is None:
            continue
        for query, since in queries:
            older = query.where(since <= until - timedelta(days=days)).order_by(since)
            for object_id, began in session.execute(older):
                yield Due(
                    kind, tenant_id, object_id, 1, began + timedelta(days=days), _find_reader(session, kind, object_id)
                )
    for kind, (row, at, which) in _lines(tenant_id).items():
        days = getattr(policy, kind)
        if days is None:
            continue
        query = select(func.count(), func.min(at)).select_from(row).where(*which, at < cut(until, days))
        count, oldest = session.execute(query).one()
        if count:
            yield Due(kind, tenant_id, None, count, _as_due(oldest, days))


def cut(now: datetime, days: int) -> datetime:
    """Return the beginning of the day before which lines go."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=days)


def build_removal(kind: str, tenant_id: str, before: datetime) -> Delete:
    """Build the statement that removes lines, other than those of the journal, from before an instant."""
    row, at, which = _lines(tenant_id)[kind]
    return delete(row).where(*which, at < before)


def _as_due(oldest: datetime, days: int) -> datetime:
    return cut(oldest, 0) + timedelta(days=days + 1)


def _find_reader(session: Session, kind: str, object_id: str) -> str | None:
    if kind == "datasets":
        return datasets.find_reader(session, object_id)
    return results.find_reader(session, object_id) if kind == "results" else None


def _things(tenant_id: str) -> dict[str, list[tuple[Any, Any]]]:
    """Statements that find things by their ids and the time from which their days count."""
    dataset = select(DatasetRow.id, DatasetRow.created_at).where(
        DatasetRow.tenant_id == tenant_id, DatasetRow.state == "ready"
    )
    left = or_(
        exists().where(ArtifactRow.job_id == JobRow.id),
        exists().where(AggregateRow.job_id == JobRow.id),
        and_(JobRow.is_audit, exists().where(PrivacyAuditRow.job_id == JobRow.id, PrivacyAuditRow.result.is_not(None))),
    )
    job = select(JobRow.id, JobRow.finished_at).where(
        JobRow.tenant_id == tenant_id, JobRow.results_removed_at.is_(None), JobRow.measured_job_id.is_(None), left
    )
    imported = select(ReleasedModelRow.id, ReleasedModelRow.created_at).where(
        ReleasedModelRow.tenant_id == tenant_id, ReleasedModelRow.job_id.is_(None)
    )
    upload = select(IntakeRow.dataset_id, IntakeRow.finished_at).join(ApiKeyRow, ApiKeyRow.id == IntakeRow.key_id)
    return {
        "datasets": [(dataset, DatasetRow.created_at)],
        "results": [(job, JobRow.finished_at), (imported, ReleasedModelRow.created_at)],
        "uploads": [
            (upload.where(ApiKeyRow.tenant_id == tenant_id, IntakeRow.state == "invalid"), IntakeRow.finished_at)
        ],
    }


_Lines = tuple[Any, Any, tuple[ColumnElement[bool], ...]]


def _lines(tenant_id: str) -> dict[str, _Lines]:
    """Tables of lines, when each was written, and which ones may go."""
    ended = select(JobRow.id).where(JobRow.tenant_id == tenant_id, JobRow.finished_at.is_not(None))
    later = aliased(JobEventRow)
    # Whoever follows a job that has ended reads its last event.
    followed = exists().where(later.job_id == JobEventRow.job_id, later.seq > JobEventRow.seq)
    told = DeliveryRow.state != "pending"
    return {
        "events": (JobEventRow, JobEventRow.created_at, (JobEventRow.job_id.in_(ended), followed)),
        "deliveries": (DeliveryRow, DeliveryRow.created_at, (DeliveryRow.tenant_id == tenant_id, told)),
        JOURNAL: (AuditEntryRow, AuditEntryRow.at, (AuditEntryRow.tenant_id == tenant_id,)),
    }
