"""How uploads become data sets: each is read by one process, and its owner can ask what came of it.

    validating → ready      a data set of the same id exists
               → invalid    it cannot be used; the report says why
    any        → deleted    the report is gone

A report names files and counts records, so it is for the owner alone, never logged, and deleted with the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.clock import to_second, utc_now
from datalens_service.errors import NotFound
from datalens_service.store.database import Database
from datalens_service.store.datasets import datasets, joining, upload_sessions
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.datasets.joining import Joined
from datalens_service.store.tables import IntakeRow


@dataclass(frozen=True)
class Validation:
    """The check of an upload, as it was when it was read.

    Attributes:
        dataset_id: Of the data set that exists once `state` is ready.
        key_id: With which it came.
        upload_id: The file; None if it came with the request.
        form: What was declared with the upload.
        report: Private: counts of records, or what is wrong. None while validating and once deleted.
    """

    dataset_id: str
    key_id: str
    upload_id: str | None
    state: DatasetState
    form: dict[str, Any]
    report: dict[str, Any] | None
    created_at: datetime
    finished_at: datetime | None

    def __repr__(self) -> str:
        return f"Validation({self.dataset_id}, {self.state})"

    @classmethod
    def of(cls, row: IntakeRow) -> Validation:
        """A copy of the row."""
        return cls(
            dataset_id=row.dataset_id,
            key_id=row.key_id,
            upload_id=row.upload_id,
            state=DatasetState(row.state),
            form=row.form,
            report=row.report,
            created_at=to_second(row.created_at),
            finished_at=row.finished_at and to_second(row.finished_at),
        )


def begin(database: Database, key_id: str, upload_id: str, form: dict[str, Any]) -> Validation:
    """Turn a complete upload over to its check; from now on, no more can be added to it.

    It has the name of its file unless the form has another.

    Raises:
        NotFound: No such upload.
        StateConflict: Something of it is missing.
    """
    with database.transaction() as session:
        upload = upload_sessions.take(session, upload_id)
        named = form if upload.name is None else {"name": upload.name, **form}
        row = _new(datasets.new_id(), key_id, upload_id, named)
        session.add(row)
        session.flush()
        return Validation.of(row)


def note_ready(database: Database, dataset_id: str, key_id: str, form: dict[str, Any], report: dict[str, Any]) -> None:
    """Keep the report of an upload that was read while its request lasted."""
    row = _new(dataset_id, key_id, None, form)
    row.state, row.report, row.finished_at = DatasetState.READY, report, utc_now()
    with database.transaction() as session:
        session.add(row)


def finish(database: Database, dataset_id: str, state: DatasetState, report: dict[str, Any]) -> None:
    """Note what came of it, unless it was deleted meanwhile."""
    with database.transaction() as session:
        row = _row(session, dataset_id)
        if row.state == DatasetState.VALIDATING:
            row.state, row.report, row.finished_at = state, report, utc_now()


def get(database: Database, dataset_id: str) -> Validation:
    """One check.

    Raises:
        NotFound: No such data set, or it came before reports were kept.
    """
    with database.session() as session:
        return Validation.of(_row(session, dataset_id))


def joined(database: Database, dataset_id: str) -> Joined | None:
    """The account that an upload joined, for its owner; None if it opened its own, or was deleted."""
    with database.session() as session:
        row = session.get(IntakeRow, dataset_id)
        state, report = (row.state, row.report) if row is not None else (None, None)
    if state == DatasetState.VALIDATING:
        # Registered a moment ago; its report is about to be noted.
        return joining.joined(database, dataset_id)
    noted = (report or {}).get("joined")
    return None if noted is None else Joined.model_validate(noted)


def validating(database: Database) -> tuple[Validation, ...]:
    """All that wait or are being read, oldest first."""
    query = select(IntakeRow).where(IntakeRow.state == DatasetState.VALIDATING).order_by(IntakeRow.created_at)
    with database.session() as session:
        return tuple(Validation.of(row) for row in session.scalars(query))


def delete(database: Database, dataset_id: str) -> Validation | None:
    """Delete the report of a data set, ready or not; None if there is none. Repeatable."""
    with database.transaction() as session:
        row = session.get(IntakeRow, dataset_id)
        if row is None:
            return None
        row.state, row.report, row.form = DatasetState.DELETED, None, {}
        row.finished_at = row.finished_at or utc_now()
        return Validation.of(row)


def _new(dataset_id: str, key_id: str, upload_id: str | None, form: dict[str, Any]) -> IntakeRow:
    return IntakeRow(
        dataset_id=dataset_id,
        key_id=key_id,
        upload_id=upload_id,
        state=DatasetState.VALIDATING,
        form=form,
        created_at=utc_now(),
    )


def _row(session: Session, dataset_id: str) -> IntakeRow:
    row = session.get(IntakeRow, dataset_id)
    if row is None:
        raise NotFound("There is no such data set.")
    return row
