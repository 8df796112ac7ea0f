"""Data sets: uploads, the account that pays for each, and tombstones that keep what was spent.

Records that were uploaded before bring their account with them (docs/decisions/0003-one-account-per-content.md):

    no record is known        a new account with the named ε and δ
    one account knows some    that account pays for this data set too; another ε or δ is refused, also a default δ
    several accounts do       the upload is refused: two budgets cannot be made one after the fact

An upload may name a data set whose account pays for it, too (docs/decisions/0012-data-that-grows.md): it is treated as
one that contains a record of that account. An image of a single colour, such as a blank one, does not tie an upload to
a budget that its owner did not mean (docs/decisions/0011-notices.md): alone, it is refused and not joined.

A known record must belong to the unit it came with (docs/decisions/0004-units-of-several-records.md).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import uuid4

from sqlalchemy import exists, or_, select, update
from sqlalchemy.orm import Session

from datalens_service.base.errors import InvalidDataset, InvalidSpec, StateConflict
from datalens_service.base.parsing import decimal_text
from datalens_service.data.dataset import Images, Schema, UnitIds
from datalens_service.data.intake.schema_inference import constant_rows
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.privacy.accounting import check_delta, default_delta
from datalens_service.store import removals
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.datasets import artifacts
from datalens_service.store.datasets.fingerprints import (
    KnownRecord,
    fingerprints,
    known_records,
    remember,
    tenant_key,
)
from datalens_service.store.installation import installation_key
from datalens_service.store.ledger import ledger
from datalens_service.store.ledger.recovery import check_log_before_upload
from datalens_service.store.paging import StoredPage, list_page
from datalens_service.store.patience import working
from datalens_service.store.removals import RemovalKind
from datalens_service.store.rows import copy_row
from datalens_service.store.schema.tables import DEFAULT_TENANT, AccountRow, DatasetRow, JobRow, PrivacyAuditRow
from datalens_service.store.unopened_uploads import explain_absence

OPEN: Final = ("queued", "running", "paused")
"""States of a job that has not ended."""
_KEY_BYTES = 32
_CONSTANT_LINK = (
    "The only images of this upload that were uploaded before show a single colour. Use ⟦leave_out_constant_images⟧ to "
    "open a budget without them, or ⟦shares_budget_with⟧ to name a data set whose budget is meant to pay for this one, "
    "too."
)


class DatasetState(StrEnum):
    """Says whether the records are still there."""

    VALIDATING = "validating"
    """A process reads the upload (`uploads.py`); there is no data set yet."""
    REVIEW = "review"
    """It was read; its owner looks at the class names, which become public with its budget (`uploads.py`)."""
    INVALID = "invalid"
    """The upload cannot be used (`uploads.py`); its owner can read why."""
    READY = "ready"
    """Records and partition key are there."""
    DELETED = "deleted"
    """A tombstone: the key is gone, the caller removes the records, account and fingerprints stay."""


@dataclass(frozen=True)
class StoredDataset:
    """A data set as it was when it was read.

    Attributes:
        records_path: Folder of the private records; for the training process only.
        partition_key: Secret of the assignment of records to shards; None once deleted.
        known_records: Different records of it that had an account already. Private, and counted when the data set is
            created; None when it is read later.
    """

    id: str
    tenant_id: str
    account_id: str
    name: str
    state: DatasetState
    schema: Schema
    format: str
    has_test: bool
    records_path: str
    partition_key: bytes | None
    created_at: datetime
    deleted_at: datetime | None
    known_records: int | None = field(default=None, compare=False)
    tags: tuple[str, ...] = ()
    notes: str = ""

    def __repr__(self) -> str:
        return f"StoredDataset({self.id}, {self.state})"

    @classmethod
    def from_row(cls, row: DatasetRow) -> StoredDataset:
        schema = Schema.model_validate(row.schema)
        return copy_row(cls, row, state=DatasetState(row.state), schema=schema, tags=tuple(row.tags))


def new_id() -> str:
    """An id for a data set that is about to be created, for example to name its folder by."""
    return f"ds_{uuid4().hex}"


def create(
    database: Database,
    *,
    dataset_id: str,
    name: str,
    schema: Schema,
    images: Images,
    unit_ids: UnitIds | None = None,
    format: str,
    has_test: bool,
    records_path: str,
    epsilon: float | None = None,
    delta: float | None = None,
    shares_budget_with: str | None = None,
    tenant_id: str = DEFAULT_TENANT,
    notices: Notices | None = None,
    settle: Callable[[Session, StoredDataset], None] = lambda _session, _stored: None,
) -> StoredDataset:
    """Register an upload with the account that pays for it.

    Args:
        images: The training records, uint8 (n, height, width, channels); only their fingerprints are kept here.
        unit_ids: int64 (n,), identity of each record's unit; None: every record is its own.
        epsilon: Lifetime budget; needed unless the records have an account already.
        delta: δ of the lifetime budget; None takes the default for n, or that of `shares_budget_with`. Known records
            need the δ of their account.
        shares_budget_with: Id of a data set of this tenant, deleted or not, whose account pays for this one, too.
        notices: Collects which records an account knew already. Private.
        settle: Called at the end of the transaction: what it notes, and refuses, is part of it.

    Raises:
        InvalidSpec: ε is missing or cannot be counted.
        InvalidDelta: δ, named or of the account, is not below 1/n.
        NotFound: The tenant has no data set `shares_budget_with`.
        StateConflict: The records have an account with another ε or δ, or share nothing but images of a single colour
            with one that was not named; or there is a data set of this id.
        InvalidDataset: The records belong to several accounts, or came with other units before.
        LedgerCorrupt: The database has forgotten data sets that the log knows; these may be their records.
    """
    with database.session() as session:
        key = tenant_key(installation_key(session, lock=False), tenant_id)
    prints = fingerprints(key, images, unit_ids)
    constant = fingerprints(key, images[constant_rows(images)]).keys()
    # Before the transaction: there, nobody else can write.
    with database.session() as session, working():
        known = known_records(session, prints)
    with database.transaction() as session:
        installation_key(session, lock=True)
        if session.get(DatasetRow, dataset_id) is not None:
            raise StateConflict("The upload was confirmed a moment ago; look at it again.")
        checked_log_bytes = check_log_before_upload(session, database.log)
        with working():
            known |= known_records(session, prints.keys() - known.keys())
        _check_same_units(prints, known)
        if schema.records_are_public:
            _check_none_is_private(session, known)
        accounts = {record.account_id for record in known.values()}
        if shares_budget_with is not None:
            named = _named_account(session, shares_budget_with, tenant_id)
            accounts.add(named.id)
            # Named by the owner, not found by a record: its δ tells nothing of the records.
            delta = named.delta if delta is None else delta
        elif epsilon is not None and known and known.keys() < prints.keys() and known.keys() <= constant:
            raise StateConflict(_CONSTANT_LINK)
        payer = _account(session, dataset_id, accounts, schema, epsilon, delta, checked_log_bytes)
        with working():
            remember(session, {item: prints[item] for item in prints.keys() - known.keys()}, payer.id)
        row = DatasetRow(
            id=dataset_id,
            tenant_id=tenant_id,
            account_id=payer.id,
            name=name,
            state=DatasetState.READY,
            schema=schema.model_dump(mode="json"),
            format=format,
            has_test=has_test,
            records_path=records_path,
            partition_key=secrets.token_bytes(_KEY_BYTES),
        )
        session.add(row)
        session.flush()
        stored = replace(StoredDataset.from_row(row), known_records=len(known))
        if notices is not None:
            notices.count(NoticeCode.SHARES_RECORDS, len(known))
            notices.count(NoticeCode.SHARES_CONSTANT_IMAGES, len(known.keys() & constant))
        settle(session, stored)
    return stored


def _check_none_is_private(session: Session, known: Mapping[bytes, KnownRecord]) -> None:
    """Refuse to declare public what an account of private records knows."""
    query = select(DatasetRow.schema).where(DatasetRow.account_id.in_({one.account_id for one in known.values()}))
    if any(not schema.get("records_are_public", False) for schema in session.scalars(query)):
        raise InvalidDataset("One of these images was uploaded as private before; it cannot be declared public now.")


def get(database: Database, dataset_id: str) -> StoredDataset:
    """Return a data set, deleted ones included."""
    with database.session() as session:
        return read(session, dataset_id)


def read(session: Session, dataset_id: str) -> StoredDataset:
    """The same within a snapshot, beside what else is read there."""
    return StoredDataset.from_row(_row(session, dataset_id))


def get_all(database: Database, dataset_ids: Iterable[str]) -> dict[str, StoredDataset]:
    """Return data sets by their ids, deleted ones included."""
    query = select(DatasetRow).where(DatasetRow.id.in_(dataset_ids))
    with database.session() as session:
        return {row.id: StoredDataset.from_row(row) for row in session.scalars(query)}


def read_names(database: Database, dataset_ids: Iterable[str]) -> dict[str, str]:
    """Names of data sets by their ids."""
    query = select(DatasetRow.id, DatasetRow.name).where(DatasetRow.id.in_(dataset_ids))
    with database.session() as session:
        return {row.id: row.name for row in session.execute(query)}


def list_datasets(
    database: Database, *, limit: int = 50, cursor: str | None = None, tenant_id: str | None = None
) -> StoredPage[StoredDataset]:
    """Data sets of a tenant, or of all, newest first, deleted ones included."""
    query = select(DatasetRow.__table__)
    if tenant_id is not None:
        query = query.where(DatasetRow.tenant_id == tenant_id)
    with database.connection() as connection:
        return list_page(
            connection, query, (DatasetRow.created_at, DatasetRow.id), StoredDataset.from_row, limit, cursor
        )


def linked(database: Database, dataset_id: str) -> tuple[str, ...]:
    """Ids of the other data sets that the same account pays for, oldest first, deleted ones included."""
    with database.session() as session:
        return read_linked(session, dataset_id)


def read_linked(session: Session, dataset_id: str) -> tuple[str, ...]:
    """The same within a snapshot, or a transaction."""
    row = _row(session, dataset_id)
    query = select(DatasetRow.id).where(DatasetRow.account_id == row.account_id, DatasetRow.id != dataset_id)
    return tuple(session.scalars(query.order_by(DatasetRow.created_at, DatasetRow.id)))


def delete(
    database: Database, dataset_id: str, settle: Callable[[Session], None] = lambda _session: None
) -> StoredDataset:
    """Turn a data set into a tombstone and note its files, which the caller removes then. Repeatable.

    Args:
        settle: Called in the transaction that does so, and by no other.

    Raises:
        StateConflict: A job on it has not ended.
    """
    with database.transaction() as session:
        account = ledger.lock_account(session, _row(session, dataset_id).account_id)
        row = _row(session, dataset_id)
        session.refresh(row)
        if row.state == DatasetState.DELETED:
            return StoredDataset.from_row(row)
        _check_no_open_job(session, dataset_id)
        row.state = DatasetState.DELETED
        row.partition_key = None
        row.deleted_at = read_database_clock(session)
        ledger.note_deletion(session, account, dataset_id)
        _forget_audits(session, dataset_id)
        artifacts.forget_private(session, dataset_id)
        removals.note(session, RemovalKind.RECORDS, row.records_path)
        settle(session)
        return StoredDataset.from_row(row)


def check_holdout(database: Database, dataset_id: str, holdout_id: str) -> StoredDataset:
    """The data set that is set aside for another one, unless it cannot be.

    Raises:
        NotFound: No such data set.
        StateConflict: It was deleted.
        InvalidSpec: It is the same, or has images of another shape or other classes.
    """
    if holdout_id == dataset_id:
        raise InvalidSpec("⟦evaluation.holdout⟧ must name another data set than the one that is trained on.")
    aside, trained = get(database, holdout_id), get(database, dataset_id)
    if aside.state is not DatasetState.READY:
        raise StateConflict("The data set that was set aside was deleted.")
    if _kind(aside.schema) != _kind(trained.schema):
        raise InvalidSpec("⟦evaluation.holdout⟧ must name a data set with images of the same shape and classes.")
    return aside


def _kind(schema: Schema) -> tuple[object, ...]:
    return schema.channels, schema.height, schema.width, schema.class_names


def _row(session: Session, dataset_id: str) -> DatasetRow:
    row = session.get(DatasetRow, dataset_id)
    if row is None:
        raise explain_absence(session, dataset_id)
    return row


def _named_account(session: Session, dataset_id: str, tenant_id: str) -> AccountRow:
    """The account of a data set that an upload names; that of another tenant does not exist."""
    row = session.get(DatasetRow, dataset_id)
    if row is None or row.tenant_id != tenant_id:
        raise explain_absence(session, dataset_id, tenant_id=tenant_id)
    return session.get_one(AccountRow, row.account_id)


def _check_same_units(prints: Mapping[bytes, bytes | None], known: Mapping[bytes, KnownRecord]) -> None:
    """Refuse other units: two budgets of one account add up only if both count the same records as a unit."""
    if any(prints[item] != record.unit_print for item, record in known.items()):
        raise InvalidDataset(
            "Records of this upload came with other privacy units before. Group them as they were grouped then: "
            "their budget is counted for those units. If they are images of a single colour, use "
            "⟦leave_out_constant_images⟧."
        )


def _account(
    session: Session,
    dataset_id: str,
    known: set[str],
    schema: Schema,
    epsilon: float | None,
    delta: float | None,
    checked_log_bytes: int,
) -> AccountRow:
    if len(known) > 1:
        raise InvalidDataset(
            "Records of this upload belong to several data sets with budgets of their own, and budgets are not merged: "
            "upload the parts separately, train on each, and put their synthetic images together, which costs nothing. "
            "If they share only images of a single colour, use ⟦leave_out_constant_images⟧. For data that grow, use "
            "⟦shares_budget_with⟧ when a part is uploaded for the first time: then one budget pays for all parts, also "
            "together."
        )
    if known:
        return _joined(session, dataset_id, known.pop(), schema, epsilon, delta)
    if epsilon is None:
        raise InvalidSpec(
            "Set ⟦epsilon⟧, for example to 10: it limits what may ever be learnt about these records, by all jobs "
            "together, and only you can raise it later. It is left out only for records that were uploaded before."
        )
    delta = default_delta(schema.num_units) if delta is None else delta
    check_delta(delta, schema.num_units)
    return ledger.open_account(session, dataset_id, epsilon, delta, checked_log_bytes)


def _joined(
    session: Session, dataset_id: str, account_id: str, schema: Schema, epsilon: float | None, delta: float | None
) -> AccountRow:
    account = ledger.lock_account(session, account_id)
    check_delta(account.delta, schema.num_units)
    # Jobs state functions of the declaration and of n: a δ taken from the account would reveal something of it.
    delta = default_delta(schema.num_units) if delta is None else delta
    if epsilon not in (None, account.epsilon) or delta != account.delta:
        kept = f"ε = {decimal_text(account.epsilon)} at δ = {decimal_text(account.delta)}"
        raise StateConflict(
            f"Records of this upload have a budget already: {kept}; "
            "leave ⟦epsilon⟧ out and name this δ to go on with what remains of it.",
            extra={"epsilon": account.epsilon, "delta": account.delta},
        )
    ledger.join(session, account, dataset_id)
    return account


def _forget_audits(session: Session, dataset_id: str) -> None:
    """Delete what attacks found: it depends on the records, and goes with them."""
    of_these = PrivacyAuditRow.job_id.in_(select(JobRow.id).where(JobRow.dataset_id == dataset_id))
    session.execute(update(PrivacyAuditRow).where(of_these).values(result=None))


def _check_no_open_job(session: Session, dataset_id: str) -> None:
    unfinished = exists().where(JobRow.dataset_id == dataset_id, JobRow.state.in_(OPEN))
    if session.scalar(select(unfinished)):
        raise StateConflict("A job on this data set has not ended; cancel it and wait for its end first.")


def find_reader(session: Session, dataset_id: str) -> str | None:
    """Return the id of a job that has not ended and reads a data set, to learn from it or to be measured on it."""
    aside = JobRow.spec["evaluation"]["holdout"].as_string() == dataset_id
    reads = or_(JobRow.dataset_id == dataset_id, aside)
    return session.scalar(select(JobRow.id).where(JobRow.state.in_(OPEN), reads).limit(1))
