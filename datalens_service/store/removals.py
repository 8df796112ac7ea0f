"""Files to be removed: noted in the transaction that removes their rows, forgotten once the files are gone.

Rows go first. A row without its file would be an error for whoever asks for it; a file without a row is found by its
note, however often a process is killed or a disk fails in between, and removing it again does no harm.
"""

from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from datalens_service.store.database import Database
from datalens_service.store.schema.service_tables import RemovalRow


class RemovalKind(StrEnum):
    """The kinds of files to be removed, and how a path names them."""

    RECORDS = "records"
    """The path of records, as the row of a data set has it."""
    JOB_FILES = "job_files"
    """Id of a job: its files that no row names."""
    UPLOAD = "upload"
    """Id of an upload that arrived in pieces."""
    GENERATOR = "generator"
    """Id of an imported generator."""


class Removal(NamedTuple):
    """Files to be removed."""

    kind: RemovalKind
    path: str


def note(session: Session, kind: RemovalKind, path: str) -> Removal:
    """Note files whose rows go in this transaction. Repeatable."""
    session.merge(RemovalRow(kind=kind, path=path))
    session.flush()
    return Removal(kind, path)


def list_noted(database: Database) -> tuple[Removal, ...]:
    """Return all that is still to be removed, oldest first."""
    query = select(RemovalRow.kind, RemovalRow.path).order_by(RemovalRow.noted_at, RemovalRow.path)
    with database.session() as session:
        return tuple(Removal(RemovalKind(row.kind), row.path) for row in session.execute(query))


def forget(database: Database, removal: Removal) -> None:
    """Forget files that are gone. Repeatable."""
    one = (RemovalRow.kind == removal.kind, RemovalRow.path == removal.path)
    with database.transaction() as session:
        session.execute(delete(RemovalRow).where(*one))
