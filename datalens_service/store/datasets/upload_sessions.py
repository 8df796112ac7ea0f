"""Uploads that arrive in chunks: what is known of each. The bytes are on the disk (`api/uploads/tus.py`)."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self
from uuid import uuid4

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import NotFound, StateConflict
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.rows import copy_row
from datalens_service.store.schema.tables import UploadRow


@dataclass(frozen=True)
class PartialUpload:
    """An upload as it was when it was read.

    Attributes:
        received: Bytes that are on the disk for certain.
        name: Name of the file, for a data set that is made from it and given no other.
        expires_at: Time of its removal unless a data set was made from it.
    """

    id: str
    key_id: str
    length: int
    received: int
    created_at: datetime
    expires_at: datetime
    name: str | None = None

    @property
    def complete(self) -> bool:
        """Return True if all bytes have arrived."""
        return self.received == self.length

    @classmethod
    def from_row(cls, row: UploadRow) -> Self:
        return copy_row(cls, row)


def create(database: Database, key_id: str, length: int, lifetime: timedelta, name: str | None = None) -> PartialUpload:
    """Announce a file of `length` bytes, at least one."""
    row = UploadRow(id=f"upl_{uuid4().hex}", key_id=key_id, length=length, received=0, name=name)
    with database.transaction() as session:
        row.created_at = read_database_clock(session)
        row.expires_at = row.created_at + lifetime
        session.add(row)
        session.flush()
        return PartialUpload.from_row(row)


def get(database: Database, upload_id: str) -> PartialUpload:
    with database.session() as session:
        return PartialUpload.from_row(_row(session, upload_id))


def advance(database: Database, upload_id: str, received: int, lifetime: timedelta) -> PartialUpload:
    """Note that `received` bytes are on the disk; its time starts anew.

    Raises:
        StateConflict: More was noted already.
    """
    with database.transaction() as session:
        row = _row(session, upload_id)
        if received < row.received:
            raise StateConflict("More of this upload was received already.")
        row.received = received
        row.expires_at = read_database_clock(session) + lifetime
        return PartialUpload.from_row(row)


def remove(database: Database, upload_id: str) -> None:
    """Forget an upload; the caller removes the file. Repeatable."""
    with database.transaction() as session:
        session.execute(delete(UploadRow).where(UploadRow.id == upload_id))


def remove_expired(database: Database) -> None:
    """Forget uploads whose time is over; the caller removes their files."""
    with database.transaction() as session:
        session.execute(delete(UploadRow).where(UploadRow.expires_at < read_database_clock(session)))


def take(session: Session, upload_id: str) -> PartialUpload:
    """Forget a complete upload because a data set is made from it now."""
    row = _row(session, upload_id)
    upload = PartialUpload.from_row(row)
    if not upload.complete:
        raise StateConflict(f"Only {upload.received} of {upload.length} bytes were received; send the rest first.")
    session.delete(row)
    return upload


def read_lengths(database: Database) -> dict[str, int]:
    """Announced lengths of all uploads, by their ids."""
    with database.session() as session:
        return {row.id: row.length for row in session.execute(select(UploadRow.id, UploadRow.length))}


def _row(session: Session, upload_id: str) -> UploadRow:
    row = session.get(UploadRow, upload_id)
    if row is None or row.expires_at < read_database_clock(session):
        raise NotFound("There is no such upload; unfinished ones are removed after a while.")
    return row


def partial_files(data_dir: Path) -> Path:
    """Folder of uploads that no dataset was made from yet."""
    return data_dir.absolute() / "uploads"
