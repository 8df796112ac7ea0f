"""What a tenant has used: counts, bytes and seconds."""

from collections.abc import Iterable
from datetime import datetime
from typing import TypedDict

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from datalens_service.clock import to_second, utc_now
from datalens_service.store.access.keys import SINGLE_SIGN_ON_PREFIX
from datalens_service.store.database import Database
from datalens_service.store.service_tables import CLASSIFIER, GENERATOR, ReleasedModelRow
from datalens_service.store.tables import ApiKeyRow, ArtifactRow, DatasetRow, JobRow


class Usage(TypedDict):
    """Of one tenant, all in all.

    Attributes:
        job_seconds: Of jobs that have ended, from first start to end.
    """

    datasets: int
    jobs: dict[str, int]
    generators: int
    classifiers: int
    api_keys: int
    artifact_bytes: int
    job_seconds: float


def _seconds(times: Iterable[tuple[datetime | None, datetime | None]]) -> float:
    return sum((to_second(end) - to_second(start)).total_seconds() for start, end in times if start and end)


def _models(session: Session, tenant_id: str, kind: str) -> int:
    mine = (ReleasedModelRow.tenant_id == tenant_id, ReleasedModelRow.kind == kind)
    return session.scalar(select(func.count()).where(*mine)) or 0


def count_usage(database: Database, tenant_id: str) -> Usage:
    """What the tenant has used up to now."""
    mine = JobRow.tenant_id == tenant_id
    unexpired = ApiKeyRow.expires_at.is_(None) | (ApiKeyRow.expires_at > utc_now())
    keyed = ~ApiKeyRow.prefix.startswith(SINGLE_SIGN_ON_PREFIX)
    usable = (ApiKeyRow.tenant_id == tenant_id, ApiKeyRow.revoked_at.is_(None), unexpired, keyed)
    times = select(JobRow.started_at, JobRow.finished_at).where(mine)
    states = select(JobRow.state, func.count()).where(mine, ~JobRow.is_audit)
    with database.session() as session:
        by_state = session.execute(states.group_by(JobRow.state))
        size = select(func.sum(ArtifactRow.size)).join(JobRow).where(mine)
        return Usage(
            datasets=session.scalar(select(func.count()).where(DatasetRow.tenant_id == tenant_id)) or 0,
            jobs={state: count for state, count in by_state},  # noqa: C416 (rows are no tuples to mypy)
            generators=_models(session, tenant_id, GENERATOR),
            classifiers=_models(session, tenant_id, CLASSIFIER),
            api_keys=session.scalar(select(func.count()).where(*usable)) or 0,
            artifact_bytes=int(session.scalar(size) or 0),
            job_seconds=_seconds([(row.started_at, row.finished_at) for row in session.execute(times)]),
        )
