"""Filters of lists of jobs."""

import json
from dataclasses import dataclass
from datetime import MAXYEAR, datetime, timedelta
from typing import Any

from sqlalchemy import Select, Text, cast, or_

from datalens_service.base.clock import to_second
from datalens_service.methods.voting.rivals import list_stored_names
from datalens_service.store.schema.tables import JobRow


@dataclass(frozen=True)
class JobFilter:
    """Selects the jobs of a list; None leaves out no job."""

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
            query = query.where(JobRow.spec["method"]["name"].as_string().in_(list_stored_names(self.method)))
        if self.search is not None:
            tagged = cast(JobRow.tags, Text).contains(json.dumps(self.search), autoescape=True)
            query = query.where(or_(JobRow.name.icontains(self.search, autoescape=True), tagged))
        if self.created_after is not None:
            query = query.where(JobRow.created_at >= _whole(self.created_after))
        if self.created_before is not None:
            query = query.where(JobRow.created_at < _whole(self.created_before))
        return query


def _whole(at: datetime) -> datetime:
    """The first whole second from `at` on: finer filters would tell the exact time of a job."""
    last = at.year == MAXYEAR
    return to_second(at) if last or not at.microsecond else to_second(at) + timedelta(seconds=1)
