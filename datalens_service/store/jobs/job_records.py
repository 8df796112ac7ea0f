"""Jobs as plain rows, JSON as text: cheap to read, hashable, and equal where the same job is shown."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import MAXYEAR, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, Select, Text, bindparam, cast, or_, select

from datalens_service.clock import to_second
from datalens_service.errors import NotFound
from datalens_service.store.database import Database
from datalens_service.store.paging import Page, list_columns
from datalens_service.store.tables import JobRow, ReservationRow

JobRecord = Row[*tuple[Any, ...]]
"""Columns of a job, and the units of its reservation."""

_JSON: Final = frozenset({"spec", "plan", "error", "tags"})
_SHOWN: Final = select(
    *(
        cast(column, Text).label(column.name) if column.name in _JSON else column
        for column in JobRow.__table__.columns
        if column.name != "release_plan"
    ),
    ReservationRow.reserved_units,
    ReservationRow.charged_units,
).join(ReservationRow, ReservationRow.owner_id == JobRow.id)
_BY_ID: Final = _SHOWN.where(JobRow.id == bindparam("id"))


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to list; what is None leaves out none.

    Attributes:
        tenant_id: Only jobs of this tenant.
        dataset_id: Only jobs on this data set.
        state: Only jobs in this state.
        method: Only jobs of the method with this name.
        search: Only jobs whose name contains it, or which have it as a tag.
        created_after: Only jobs whose second of creation is this instant or later.
        created_before: Only jobs whose second of creation is before this instant.
    """

    tenant_id: str | None = None
    dataset_id: str | None = None
    state: str | None = None
    method: str | None = None
    search: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def applied_to(self, query: Select[*tuple[Any, ...]]) -> Select[*tuple[Any, ...]]:
        """The query with these conditions."""
        for name in ("tenant_id", "dataset_id", "state"):
            if (value := getattr(self, name)) is not None:
                query = query.where(getattr(JobRow, name) == value)
        if self.method is not None:
            query = query.where(JobRow.spec["method"]["name"].as_string() == self.method)
        if self.search is not None:
            tagged = cast(JobRow.tags, Text).contains(json.dumps(self.search), autoescape=True)
            query = query.where(or_(JobRow.name.icontains(self.search, autoescape=True), tagged))
        if self.created_after is not None:
            query = query.where(JobRow.created_at >= _whole(self.created_after))
        if self.created_before is not None:
            query = query.where(JobRow.created_at < _whole(self.created_before))
        return query


def get_record(database: Database, job_id: str) -> JobRecord:
    """One job.

    Raises:
        NotFound: No such job.
    """
    with database.connection() as connection:
        record = connection.execute(_BY_ID, {"id": job_id}).one_or_none()
    if record is None:
        raise NotFound("There is no such job.")
    return record


def list_records(database: Database, which: JobFilter, *, limit: int, cursor: str | None) -> Page[JobRecord]:
    """Jobs, newest first, without what they paid for figures elsewhere (`measurements.py`) and audits (`audits.py`).

    Args:
        database: Where.
        which: Conditions.
        limit: Most jobs in this page.
        cursor: Of the page before, or None.

    Raises:
        InvalidInput: `limit` or `cursor` is not usable.
    """
    query = which.applied_to(_SHOWN.where(JobRow.measured_job_id.is_(None), ~JobRow.is_audit))
    with database.connection() as connection:
        return list_columns(connection, query, (JobRow.created_at, JobRow.id), lambda record: record, limit, cursor)


def parse_columns(record: JobRecord) -> dict[str, Any]:
    """Columns by name, JSON as values."""
    columns = record._asdict()
    return columns | {name: json.loads(columns[name]) for name in _JSON if columns[name] is not None}


def _whole(at: datetime) -> datetime:
    """The first whole second from `at` on: finer filters would tell the exact time of a job."""
    last = at.year == MAXYEAR
    return to_second(at) if last or not at.microsecond else to_second(at) + timedelta(seconds=1)
