"""Generators as objects: those that jobs made, and those that somebody brought along.

A generator that was imported is data of strangers: this service did not see what it was trained on, its ledger does
not cover it, and whatever its card says is the claim of whoever made it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.clock import to_second, utc_now
from datalens_service.errors import NotFound
from datalens_service.store.database import Database
from datalens_service.store.paging import Page, list_page
from datalens_service.store.service_tables import GeneratorRow
from datalens_service.store.tables import JobRow


@dataclass(frozen=True)
class StoredGenerator:
    """A generator as it was when it was read.

    Attributes:
        job_id: The job that made it; None for an imported one.
        card: Of an imported one, as it came.
        sha256: Of an imported one's file.
    """

    id: str
    tenant_id: str
    job_id: str | None
    name: str
    card: dict[str, Any] | None
    sha256: str | None
    created_at: datetime

    @property
    def imported(self) -> bool:
        """Whether this service did not make it, so that its ledger does not cover it."""
        return self.job_id is None

    @classmethod
    def of(cls, row: GeneratorRow) -> StoredGenerator:
        """A copy of the row."""
        return cls(row.id, row.tenant_id, row.job_id, row.name, row.card, row.sha256, to_second(row.created_at))


def new_id() -> str:
    """An id for a generator that is about to be imported."""
    return f"gen_{uuid4().hex}"


def id_of(job_id: str) -> str:
    """Id of the generator that a job makes."""
    return f"gen_{job_id.partition('_')[2]}"


def add_made(session: Session, job: JobRow) -> None:
    """Note the generator of a job that succeeds in this transaction, if it is not noted yet."""
    if session.get(GeneratorRow, id_of(job.id)) is not None:
        return
    row = GeneratorRow(id=id_of(job.id), tenant_id=job.tenant_id, job_id=job.id, name=job.id, created_at=utc_now())
    session.add(row)
    session.flush()


def add_imported(
    database: Database, generator_id: str, tenant_id: str, *, name: str, card: dict[str, Any], sha256: str
) -> StoredGenerator:
    """Note a generator whose file lies where the caller put it."""
    row = GeneratorRow(
        id=generator_id, tenant_id=tenant_id, job_id=None, name=name, card=card, sha256=sha256, created_at=utc_now()
    )
    with database.transaction() as session:
        session.add(row)
        session.flush()
        return StoredGenerator.of(row)


def get(database: Database, generator_id: str) -> StoredGenerator:
    """One generator.

    Raises:
        NotFound: There is none.
    """
    with database.session() as session:
        row = session.get(GeneratorRow, generator_id)
        if row is None:
            raise NotFound("There is no such generator.")
        return StoredGenerator.of(row)


def list_generators(
    database: Database, tenant_id: str, *, limit: int = 50, cursor: str | None = None
) -> Page[StoredGenerator]:
    """Generators of a tenant, newest first.

    Raises:
        InvalidInput: `limit` or `cursor` is not usable.
    """
    query = select(GeneratorRow).where(GeneratorRow.tenant_id == tenant_id)
    with database.session() as session:
        return list_page(session, query, (GeneratorRow.created_at, GeneratorRow.id), StoredGenerator.of, limit, cursor)


def delete_imported(database: Database, generator_id: str) -> bool:
    """Forget an imported generator; False for one that a job made, which is a release and stays."""
    with database.transaction() as session:
        row = session.get(GeneratorRow, generator_id)
        if row is None:
            raise NotFound("There is no such generator.")
        if row.job_id is not None:
            return False
        session.delete(row)
        return True
