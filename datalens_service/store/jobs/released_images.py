"""Finds the jobs that made a synthetic image, by the hash of its pixels. Of private images nothing is here."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from sqlalchemy import delete, insert, select

from datalens_service.store.database import Database
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.jobs.released_models import Approval
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.service_tables import ReleasedImageRow
from datalens_service.store.schema.tables import JobRow

MOST_ORIGINS: Final = 100
_BATCH: Final = 10_000


@dataclass(frozen=True)
class ImageOrigin:
    """A job that made an image, and when its images were ready."""

    job_id: str
    released_at: datetime


def record(database: Database, lease: Lease, hashes: Iterable[str]) -> None:
    """Note the images that a job packed, under its lease; repeatable."""
    with database.transaction() as session:
        _, job = ledger.lock(session, lease.job_id)
        ledger.check_lease(job, lease.token)
        session.execute(delete(ReleasedImageRow).where(ReleasedImageRow.job_id == lease.job_id))
        rows = ({"pixel_hash": bytes.fromhex(one), "job_id": lease.job_id} for one in dict.fromkeys(hashes))
        while batch := list(islice(rows, _BATCH)):
            session.execute(insert(ReleasedImageRow), batch)


def find(database: Database, tenant_id: str, pixel_hash: str) -> tuple[ImageOrigin, ...]:
    """Return the first jobs of a tenant that packed an image with these pixels and may hand it out, oldest first."""
    query = (
        select(JobRow.id, JobRow.released_at)
        .join(ReleasedImageRow, ReleasedImageRow.job_id == JobRow.id)
        .where(ReleasedImageRow.pixel_hash == bytes.fromhex(pixel_hash), JobRow.tenant_id == tenant_id)
        .where(JobRow.approval.is_(None) | (JobRow.approval == Approval.RELEASED))
        .order_by(JobRow.released_at, JobRow.id)
    )
    with database.session() as session:
        rows = session.execute(query.limit(MOST_ORIGINS))
        return tuple(ImageOrigin(job_id, ready) for job_id, ready in rows if ready is not None)
