"""Counts what a tenant has used: objects, bytes and seconds."""

from collections import Counter
from dataclasses import dataclass

from sqlalchemy import func, select

from datalens_service.base.audience import Public
from datalens_service.store.access.keys import is_usable
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.schema import job_totals
from datalens_service.store.schema.service_tables import CLASSIFIER, GENERATOR, ReleasedModelRow
from datalens_service.store.schema.tables import ApiKeyRow, DatasetRow


@dataclass(frozen=True)
class Usage:
    """Totals of one tenant.

    Attributes:
        artifact_bytes: Size of files that anybody may have: others depend on private figures, also in their length.
        job_seconds: Time of jobs that have ended, from first start to end; audits, which the owner sees alone, are
            none.
    """

    datasets: Public[int]
    jobs: Public[dict[str, int]]
    generators: Public[int]
    classifiers: Public[int]
    api_keys: Public[int]
    artifact_bytes: Public[int]
    job_seconds: Public[float]


def count_usage(database: Database, tenant_id: str) -> Usage:
    """Count what the tenant has used up to now."""
    # Without the tenant, whose index has all models of all jobs.
    imported = select(ReleasedModelRow.tenant_id).where(ReleasedModelRow.job_id.is_(None))
    jobs, models = Counter[str](), Counter[str]()
    with database.session() as session:
        usable = (ApiKeyRow.tenant_id == tenant_id, is_usable(read_database_clock(session)))
        totals = job_totals.read_totals(session, tenant_id)
        trained = [total for total in totals if total.kind != job_totals.AUDIT]
        for total in trained:
            jobs[total.state] += total.jobs
            models[total.kind] += total.models
        return Usage(
            datasets=session.scalar(select(func.count()).where(DatasetRow.tenant_id == tenant_id)) or 0,
            jobs=dict(jobs),
            generators=models[GENERATOR] + list(session.scalars(imported)).count(tenant_id),
            classifiers=models[CLASSIFIER],
            api_keys=session.scalar(select(func.count()).where(*usable)) or 0,
            artifact_bytes=sum(total.artifact_bytes for total in totals),
            job_seconds=float(sum(total.seconds for total in trained)),
        )
