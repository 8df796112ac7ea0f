"""The journal of an account from its newest entry backwards, a portion at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

from sqlalchemy import ColumnElement, func, literal_column, select
from sqlalchemy.orm import Session

from datalens_service.base.fields import copied
from datalens_service.privacy.accounting import Charge
from datalens_service.proof.hash_chain import SPENDS, Entry, EntryKind
from datalens_service.proof.spenders import Actor, Spender
from datalens_service.store.ledger.account_summary import read_account
from datalens_service.store.schema.tables import AccountRow, ApiKeyRow, JobRow, LedgerEntryRow


@dataclass(frozen=True)
class JournalLine:
    """An entry of the journal as a table shows it."""

    seq: int
    kind: EntryKind
    job_id: str | None
    label: str
    ledger_units: int
    slack: int
    at: datetime
    hash: str


_LINES = select(*(getattr(LedgerEntryRow, one.name) for one in fields(JournalLine)))


@dataclass(frozen=True)
class JournalSlice:
    """A portion of the journal.

    Attributes:
        spent: All that was charged up to the newest of them, itself included.
        limit_units: Units that the account may spend now.
    """

    lines: Sequence[JournalLine]
    spent: Charge
    limit_units: int


def read_slice(session: Session, dataset_id: str, before: int | None, limit: int) -> JournalSlice:
    """The newest entries, or the newest of those before an entry.

    Args:
        before: Number of an entry that is not read any more; None starts with the newest.
    """
    account = read_account(session, dataset_id)
    query = _LINES.where(*_entries(account, before)).order_by(LedgerEntryRow.seq.desc())
    lines = [copied(JournalLine, row, kind=EntryKind(row.kind)) for row in session.execute(query.limit(limit))]
    return JournalSlice(lines, _spent(session, account, before), account.limit_units)


def read_deletion(session: Session, dataset_id: str) -> Entry | None:
    """The entry that sealed the deletion of a data set; None if there is none."""
    # Written out: there is an index of deletions.
    deletions = LedgerEntryRow.kind == literal_column(f"'{EntryKind.DELETE}'")
    row = session.scalar(select(LedgerEntryRow).where(LedgerEntryRow.dataset_id == dataset_id, deletions))
    return None if row is None else Entry.model_validate(row)


def _entries(account: AccountRow, before: int | None) -> tuple[ColumnElement[bool], ...]:
    mine = LedgerEntryRow.account_id == account.id
    return (mine,) if before is None else (mine, LedgerEntryRow.seq < before)


def _spent(session: Session, account: AccountRow, before: int | None) -> Charge:
    """Return what was spent: by the account's totals, less what came later; of a frozen account by the journal."""
    if account.frozen_reason is not None:
        return _sum(session, *_entries(account, before))
    if before is None:
        return Charge(account.charged_units, account.charged_slack)
    later = _sum(session, LedgerEntryRow.account_id == account.id, LedgerEntryRow.seq >= before)
    return Charge(account.charged_units - later.ledger_units, account.charged_slack - later.slack)


def _sum(session: Session, *entries: ColumnElement[bool]) -> Charge:
    """Add up what some entries spent."""
    total, slack_sum = (func.coalesce(func.sum(one), 0) for one in (LedgerEntryRow.ledger_units, LedgerEntryRow.slack))
    ledger_units, slack = session.execute(
        select(total, slack_sum).where(*entries, LedgerEntryRow.kind.in_(SPENDS))
    ).one()
    return Charge(int(ledger_units), int(slack))


_AT_ONCE = 500
"""Fewer than the parameters that a statement may have."""


def read_spenders(session: Session, named: Iterable[str | None]) -> tuple[Spender, ...]:
    """Return the submitter of each job that entries name, in their order.

    Args:
        named: The job of each entry; None of one that is about no job.
    """
    job_ids = [job_id for job_id in dict.fromkeys(named) if job_id is not None]
    query = select(JobRow.id, JobRow.submitted_by, ApiKeyRow.name).outerjoin(
        ApiKeyRow, ApiKeyRow.id == JobRow.submitted_by
    )
    found: dict[str, Actor] = {}
    for start in range(0, len(job_ids), _AT_ONCE):
        rows = session.execute(query.where(JobRow.id.in_(job_ids[start : start + _AT_ONCE])))
        found |= {job_id: Actor(id=actor, name=name) for job_id, actor, name in rows if actor is not None}
    return tuple(Spender(job_id=job_id, submitted_by=found.get(job_id)) for job_id in job_ids)
