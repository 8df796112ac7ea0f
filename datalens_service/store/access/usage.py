"""What a tenant has used: counts, bytes and seconds."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, cast, func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from datalens_service.clock import utc_now
from datalens_service.disclosure import Public
from datalens_service.store.access.keys import SINGLE_SIGN_ON_PREFIX
from datalens_service.store.database import Database
from datalens_service.store.service_tables import CLASSIFIER, GENERATOR, ReleasedModelRow
from datalens_service.store.tables import ApiKeyRow, ArtifactRow, DatasetRow, JobRow


@dataclass(frozen=True)
class Usage:
    """Of one tenant, all in all.

    Attributes:
        artifact_bytes: Of files that anybody may have: others depend on private figures, also in their length.
        job_seconds: Of jobs that have ended, from first start to end; audits, which the owner sees alone, are none.
    """

    datasets: Public[int]
    jobs: Public[dict[str, int]]
    generators: Public[int]
    classifiers: Public[int]
    api_keys: Public[int]
    artifact_bytes: Public[int]
    job_seconds: Public[float]


def _whole_second(session: Session, at: InstrumentedAttribute[datetime | None]) -> ColumnElement[int]:
    """Seconds since 1970, by the database: a tenant may have had very many jobs."""
    if session.get_bind().dialect.name == "sqlite":
        return cast(func.strftime("%s", at), BigInteger)
    return cast(func.extract("epoch", func.date_trunc("second", at)), BigInteger)


def _models(session: Session, tenant_id: str, kind: str) -> int:
    mine = (ReleasedModelRow.tenant_id == tenant_id, ReleasedModelRow.kind == kind)
    return session.scalar(select(func.count()).where(*mine)) or 0


def count_usage(database: Database, tenant_id: str) -> Usage:
    """What the tenant has used up to now."""
    mine = JobRow.tenant_id == tenant_id
    unexpired = ApiKeyRow.expires_at.is_(None) | (ApiKeyRow.expires_at > utc_now())
    keyed = ~ApiKeyRow.prefix.startswith(SINGLE_SIGN_ON_PREFIX)
    usable = (ApiKeyRow.tenant_id == tenant_id, ApiKeyRow.revoked_at.is_(None), unexpired, keyed)
    states = select(JobRow.state, func.count()).where(mine, ~JobRow.is_audit)
    with database.session() as session:
        by_state = session.execute(states.group_by(JobRow.state))
        spent = func.sum(_whole_second(session, JobRow.finished_at) - _whole_second(session, JobRow.started_at))
        size = select(func.sum(ArtifactRow.size)).join(JobRow).where(mine, ArtifactRow.releasable)
        return Usage(
            datasets=session.scalar(select(func.count()).where(DatasetRow.tenant_id == tenant_id)) or 0,
            jobs={state: count for state, count in by_state},  # noqa: C416 (rows are no tuples to mypy)
            generators=_models(session, tenant_id, GENERATOR),
            classifiers=_models(session, tenant_id, CLASSIFIER),
            api_keys=session.scalar(select(func.count()).where(*usable)) or 0,
            artifact_bytes=int(session.scalar(size) or 0),
            job_seconds=float(session.scalar(select(spent).where(mine, ~JobRow.is_audit)) or 0),
        )
