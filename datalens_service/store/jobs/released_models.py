"""Released models as objects: those that jobs made, and generators that somebody brought along.

A generator that was imported is data of strangers: this service did not see what it was trained on, its ledger does
not cover it, and whatever its card says is the claim of whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import NotFound
from datalens_service.store import removals
from datalens_service.store.database import Database
from datalens_service.store.paging import StoredPage, list_page
from datalens_service.store.removals import RemovalKind
from datalens_service.store.rows import copy_row, get_or_refuse
from datalens_service.store.schema.service_tables import CLASSIFIER, GENERATOR, ReleasedModelRow
from datalens_service.store.schema.tables import JobRow

__all__ = ["CLASSIFIER", "GENERATOR", "StoredModel"]

_PREFIXES: Final = {GENERATOR: "gen", CLASSIFIER: "clf"}
_ANY_PREFIX: Final = "mod"


class Approval(StrEnum):
    """The decision of a second person about the result of a job; `approvals.py` draws its arrows."""

    WAITING = "waiting"
    """Nobody has decided."""
    RELEASED = "released"
    """It is handed out like that of any job."""
    WITHHELD = "withheld"
    """It is handed out to nobody."""


HELD: Final = (Approval.WAITING, Approval.WITHHELD)
"""Decisions by which a result is handed out to nobody."""


@dataclass(frozen=True)
class StoredModel:
    """A released model as it was when it was read.

    Attributes:
        job_id: The job that made it; None for an imported one.
        title: Public name that its owner gave the release; may be empty.
        license: SPDX id of the terms for whoever gets it by a link, or `other`.
    """

    id: str
    tenant_id: str
    job_id: str | None
    name: str
    card: dict[str, Any] | None
    sha256: str | None
    created_at: datetime
    kind: str = GENERATOR
    title: str = ""
    license: str = "other"

    @property
    def imported(self) -> bool:
        """Return True if this service did not make it, so that its ledger does not cover it."""
        return self.job_id is None

    @classmethod
    def from_row(cls, row: ReleasedModelRow) -> StoredModel:
        return copy_row(cls, row)


def new_id() -> str:
    """An id for a generator that is about to be imported."""
    return f"{_PREFIXES[GENERATOR]}_{uuid4().hex}"


def build_id(job_id: str, kind: str = GENERATOR) -> str:
    return f"{_PREFIXES.get(kind, _ANY_PREFIX)}_{job_id.partition('_')[2]}"


def add_made(session: Session, job: JobRow, kind: str) -> None:
    """Note the model of a job that succeeds in this transaction, if it is not noted yet."""
    model_id = build_id(job.id, kind)
    if session.get(ReleasedModelRow, model_id) is not None:
        return
    row = ReleasedModelRow(id=model_id, tenant_id=job.tenant_id, kind=kind, job_id=job.id, name=job.id)
    session.add(row)
    session.flush()


def add_imported(
    database: Database, generator_id: str, tenant_id: str, *, name: str, card: dict[str, Any], sha256: str
) -> StoredModel:
    """Note a generator whose file lies where the caller put it."""
    row = ReleasedModelRow(
        id=generator_id,
        tenant_id=tenant_id,
        kind=GENERATOR,
        job_id=None,
        name=name,
        card=card,
        sha256=sha256,
    )
    with database.transaction() as session:
        session.add(row)
        session.flush()
        return StoredModel.from_row(row)


def get(database: Database, model_id: str, kind: str = GENERATOR) -> StoredModel:
    """Return a model of a kind."""
    with database.session() as session:
        row = session.get(ReleasedModelRow, model_id)
        if row is None or row.kind != kind:
            raise NotFound(f"There is no such {kind}.")
        return StoredModel.from_row(row)


def find(database: Database, model_id: str) -> StoredModel:
    with database.session() as session:
        return StoredModel.from_row(get_or_refuse(session, ReleasedModelRow, model_id, "release"))


def describe(database: Database, model_id: str, *, title: str | None = None, license: str | None = None) -> StoredModel:
    """Give a release its public title and licence; what is None stays as it is."""
    with database.transaction() as session:
        row = get_or_refuse(session, ReleasedModelRow, model_id, "release")
        row.title = row.title if title is None else title
        row.license = row.license if license is None else license
        session.flush()
        return StoredModel.from_row(row)


def list_models(
    database: Database, tenant_id: str, *, kind: str | None = None, limit: int = 50, cursor: str | None = None
) -> StoredPage[StoredModel]:
    """Models of a tenant that nobody holds back, newest first."""
    held = exists().where(JobRow.id == ReleasedModelRow.job_id, JobRow.approval.in_(HELD))
    query = select(ReleasedModelRow.__table__).where(ReleasedModelRow.tenant_id == tenant_id, ~held)
    if kind is not None:
        query = query.where(ReleasedModelRow.kind == kind)
    with database.connection() as connection:
        columns = (ReleasedModelRow.created_at, ReleasedModelRow.id)
        return list_page(connection, query, columns, StoredModel.from_row, limit, cursor)


def delete_imported(
    database: Database, generator_id: str, settle: Callable[[Session], None] = lambda _session: None
) -> bool:
    """Forget an imported generator and note its files to be removed; False for one that a job made, which stays.

    Args:
        settle: Called in the transaction that does so.
    """
    with database.transaction() as session:
        row = session.get(ReleasedModelRow, generator_id)
        if row is None or row.kind != GENERATOR:
            raise NotFound("There is no such generator.")
        if row.job_id is not None:
            return False
        session.delete(row)
        removals.note(session, RemovalKind.GENERATOR, generator_id)
        settle(session)
        return True
