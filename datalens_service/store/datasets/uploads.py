"""Uploads before they are data sets: each is read by one process, and its owner can ask what came of it.

    validating → review     it was read; its owner looks at the class names, which become public with its budget
               → ready      the same, with class names that were confirmed beforehand
               → invalid    it cannot be used; the report says why
    review     → ready      confirmed: a data set of the same id exists
    any        → deleted    the report is gone

An upload becomes ready in the transaction that creates its data set: there is never one without the other.
A report names files and counts records, so it is for the owner alone, never logged, and deleted with the data. So is
which account an upload joined: that two uploads share a record depends on the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from datalens_service.base.audience import Private
from datalens_service.base.errors import StateConflict
from datalens_service.base.fields import Stated, copied
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store import removals
from datalens_service.store.access import quotas
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_clock, read_database_clock
from datalens_service.store.datasets import datasets, upload_sessions
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.ledger.account_summary import summarize_account
from datalens_service.store.removals import RemovalKind
from datalens_service.store.rows import copy_row, get_or_refuse
from datalens_service.store.schema.tables import DatasetRow, IntakeRow, LedgerEntryRow


@dataclass(frozen=True)
class StoredUpload:
    """An upload before it is a data set, as it was when it was read.

    Attributes:
        dataset_id: Id of the data set that exists once `state` is ready.
        upload_id: The file; None if it came with a request, and was noted once it was read.
        form: Declaration that came with the upload.
        report: Counts of records, or what is wrong, for the owner. None while validating and once deleted.
    """

    dataset_id: str
    key_id: str
    upload_id: str | None
    state: DatasetState
    form: dict[str, Any]
    report: Private[dict[str, Any]] | None
    created_at: datetime
    finished_at: datetime | None

    def __repr__(self) -> str:
        return f"StoredUpload({self.dataset_id}, {self.state})"

    @classmethod
    def from_row(cls, row: IntakeRow) -> StoredUpload:
        report = None if row.report is None else Private(row.report)
        return copy_row(cls, row, state=DatasetState(row.state), report=report)


def begin(database: Database, key_id: str, upload_id: str, form: dict[str, Any]) -> StoredUpload:
    """Turn a complete upload over to its check; from now on, no more can be added to it.

    It has the name of its file unless the form has another.

    Raises:
        StateConflict: Something of it is missing.
        QuotaExceeded: The tenant has as many data sets as it may.
    """
    with database.transaction() as session:
        dataset_id = datasets.new_id()
        quotas.check_datasets(session, quotas.find_tenant(session, key_id), dataset_id)
        upload = upload_sessions.take(session, upload_id)
        named = form if upload.name is None else {"name": upload.name, **form}
        row = _new(dataset_id, key_id, upload_id, named)
        session.add(row)
        session.flush()
        return StoredUpload.from_row(row)


def begin_request(database: Database, key_id: str, form: dict[str, Any]) -> StoredUpload:
    """The check of an upload that is read while its request lasts; noted nowhere before it has ended."""
    row = _new(datasets.new_id(), key_id, None, form)
    row.created_at = read_clock(database)
    return StoredUpload.from_row(row)


def settle(
    session: Session, seen: StoredUpload, state: DatasetState, report: dict[str, Any] | None, form: dict[str, Any]
) -> None:
    """Note what came of an upload, in the transaction that makes it so.

    Args:
        seen: The upload as the caller saw it.
        form: Declaration, with the budget that was confirmed.

    Raises:
        StateConflict: Somebody else deleted or confirmed it meanwhile.
    """
    row = session.get(IntakeRow, seen.dataset_id, with_for_update=True)
    if row is None:
        quotas.check_datasets(session, quotas.find_tenant(session, seen.key_id), seen.dataset_id)
        row = _new(seen.dataset_id, seen.key_id, seen.upload_id, form)
        session.add(row)
    elif row.state != seen.state:
        raise StateConflict(f"The upload is {row.state} by now; look at it again.")
    row.state, row.report, row.form = state, report, form
    row.finished_at = read_database_clock(session)
    session.flush()


def note(database: Database, seen: StoredUpload, state: DatasetState, report: dict[str, Any]) -> None:
    """Note what came of an upload that is no data set, or not yet.

    Raises:
        StateConflict: Somebody else deleted it meanwhile.
    """
    with database.transaction() as session:
        settle(session, seen, state, report, seen.form)


def get(database: Database, dataset_id: str) -> StoredUpload:
    with database.session() as session:
        return StoredUpload.from_row(get_or_refuse(session, IntakeRow, dataset_id, "data set"))


def count_test_images(database: Database, dataset_id: str) -> int | None:
    """Test images of an upload, for its owner; None where no report on it is kept."""
    with database.session() as session:
        row = session.get(IntakeRow, dataset_id)
        counts = None if row is None or row.report is None else row.report.get("counts")
        return None if counts is None else int(counts["test"])


def joined(database: Database, dataset_ids: Iterable[str]) -> dict[str, Joined]:
    """The accounts that uploads joined, for their owner; without those that opened their own, or were deleted."""
    query = select(IntakeRow.dataset_id, IntakeRow.report).where(IntakeRow.dataset_id.in_(dataset_ids))
    with database.session() as session:
        noted = {dataset_id: (report or {}).get("joined") for dataset_id, report in session.execute(query)}
    return {dataset_id: Joined.model_validate(account) for dataset_id, account in noted.items() if account is not None}


def in_state(database: Database, state: DatasetState) -> tuple[StoredUpload, ...]:
    """Return all uploads in a state, oldest first."""
    query = select(IntakeRow).where(IntakeRow.state == state).order_by(IntakeRow.created_at)
    with database.session() as session:
        return tuple(StoredUpload.from_row(row) for row in session.scalars(query))


def delete(
    database: Database, dataset_id: str, settle: Callable[[Session], None] = lambda _session: None
) -> StoredUpload | None:
    """Delete the report of an upload; None if there is none. Repeatable.

    One that is not ready cannot become so any more. Of one that is, the data set has to be deleted first. Its files are
    noted to be removed.

    Args:
        settle: Called in the transaction that deletes it, and by no other.

    Raises:
        StateConflict: It is ready, and its data set was not deleted.
    """
    with database.transaction() as session:
        row = session.get(IntakeRow, dataset_id, with_for_update=True)
        if row is None:
            return None
        dataset = session.get(DatasetRow, dataset_id)
        if dataset is not None and dataset.state != DatasetState.DELETED:
            raise StateConflict("The upload has become a data set by now; delete that.")
        if row.state != DatasetState.DELETED:
            settle(session)
        if dataset is None:
            removals.note(session, RemovalKind.RECORDS, dataset_id)
        if row.upload_id is not None:
            removals.note(session, RemovalKind.UPLOAD, row.upload_id)
        row.state, row.report, row.form = DatasetState.DELETED, None, {}
        row.finished_at = row.finished_at or read_database_clock(session)
        return StoredUpload.from_row(row)


def _new(dataset_id: str, key_id: str, upload_id: str | None, form: dict[str, Any]) -> IntakeRow:
    return IntakeRow(
        dataset_id=dataset_id, key_id=key_id, upload_id=upload_id, state=DatasetState.VALIDATING, form=form
    )


class Joined(BaseModel):
    """The account that an upload joined, as it was then."""

    model_config = ConfigDict(frozen=True)

    known_records: int | None = Field(
        description="Number of records of the upload that were known; null for some uploads of earlier versions."
    )
    dataset_ids: tuple[str, ...] = Field(description="Data sets that share the account, the first one first.")
    epsilon: Stated = Field(description="Lifetime limit of the account.")
    delta: Stated
    epsilon_spent: Stated = Field(description="Spent by jobs on all its data sets, rounded up.")
    epsilon_remaining: Stated = Field(description="Largest ε a new job may name, rounded down.")


def find_joined(session: Session, dataset_id: str, known_records: int | None) -> Joined | None:
    """The account that a data set joined; None if it opened its own."""
    of_it = (LedgerEntryRow.kind == EntryKind.JOIN, LedgerEntryRow.dataset_id == dataset_id)
    if not session.scalar(select(exists().where(*of_it))):
        return None
    account, linked = summarize_account(session, dataset_id), datasets.read_linked(session, dataset_id)
    return copied(Joined, account, known_records=known_records, dataset_ids=linked)
