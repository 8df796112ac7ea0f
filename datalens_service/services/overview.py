"""Figures that an operator watches: jobs by state, the queues, the pace of releases, and the accounts.

Everything is read from the database when it is asked for, so every replica of the API gives the same answer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from datalens_service.base.audience import AllPublic, Public
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.database import Database
from datalens_service.store.database_clock import read_database_clock
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.account_summary import AccountSummary, summarize_row
from datalens_service.store.schema import job_totals
from datalens_service.store.schema.tables import AccountRow, DatasetRow, JobRow, LedgerEntryRow

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_ENDED = tuple(state for state in JobState if state.terminal)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True)
class Waiting:
    """Jobs that wait in one queue.

    Attributes:
        queue: Its name; empty where any worker may take them.
        oldest_seconds: Since the first of them was submitted.
    """

    queue: Public[str]
    jobs: Public[int]
    oldest_seconds: Public[float]


@dataclass(frozen=True)
class Overview:
    """The service at one moment.

    Attributes:
        steps_per_second: Releases charged in the last whole minute; the public journals tell no finer times.
        entries: Lines of all journals; only ever grows.
    """

    jobs: Public[dict[str, int]]
    waiting: Public[tuple[Waiting, ...]]
    failed: Public[dict[str, int]]
    without_worker: Public[int]
    steps_per_second: Public[float]
    entries: Public[int]
    frozen_accounts: Public[int]
    accounts: AllPublic[dict[str, AccountSummary]]


def overview(database: Database, *, now: datetime | None = None) -> Overview:
    """Read everything at one moment."""
    with database.session() as session:
        now = now or read_database_clock(session)
        accounts = session.scalars(select(AccountRow)).all()
        return Overview(
            jobs=_by_state(session),
            waiting=_waiting(session, now),
            failed=_failed(session, now - _HOUR),
            without_worker=_without_worker(session),
            steps_per_second=_charges_of_minute(session, now - _MINUTE) / _MINUTE.total_seconds(),
            entries=sum(account.head_seq for account in accounts),
            frozen_accounts=sum(account.frozen_reason is not None for account in accounts),
            accounts=_statements(session, accounts),
        )


def _by_state(session: Session) -> dict[str, int]:
    counted = {state.value: 0 for state in JobState}
    for total in job_totals.read_totals(session):
        counted[total.state] += total.jobs
    return counted


def _waiting(session: Session, now: datetime) -> tuple[Waiting, ...]:
    query = select(JobRow.queue, func.count(), func.min(JobRow.created_at)).where(JobRow.state == JobState.QUEUED)
    rows = session.execute(query.group_by(JobRow.queue).order_by(JobRow.queue))
    return tuple(Waiting(queue or "", count, max(0.0, (now - oldest) // _SECOND)) for queue, count, oldest in rows)


def _failed(session: Session, since: datetime) -> dict[str, int]:
    failed = (JobRow.finished_at >= since, JobRow.state == JobState.FAILED)
    errors = session.scalars(select(JobRow.error).where(*failed)).all()
    return Counter(str(error["type"]) for error in errors if error is not None)


def _without_worker(session: Session) -> int:
    lost = (JobRow.state == JobState.RUNNING, JobRow.lease_until < read_database_clock(session))
    return session.scalar(select(func.count()).select_from(JobRow).where(*lost)) or 0


def _charges_of_minute(session: Session, moment: datetime) -> int:
    minute = moment.replace(second=0, microsecond=0)
    # By the index on (job, step): the journal as a whole may be long.
    at_work = select(JobRow.id).where(
        or_(JobRow.state == JobState.RUNNING, and_(JobRow.state.in_(_ENDED), JobRow.finished_at >= minute))
    )
    then = (LedgerEntryRow.kind == EntryKind.CHARGE, LedgerEntryRow.at >= minute, LedgerEntryRow.at < minute + _MINUTE)
    query = select(func.count()).select_from(LedgerEntryRow).where(LedgerEntryRow.job_id.in_(at_work), *then)
    return session.scalar(query) or 0


def _statements(session: Session, accounts: Sequence[AccountRow]) -> dict[str, AccountSummary]:
    statements = {account.id: summarize_row(account) for account in accounts}
    ready = select(DatasetRow.id, DatasetRow.account_id).where(DatasetRow.state == "ready").order_by(DatasetRow.id)
    return {dataset_id: statements[account_id] for dataset_id, account_id in session.execute(ready)}
