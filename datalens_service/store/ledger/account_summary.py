"""Read-only views of an account: its summary, its journal, and which account pays for a data set."""

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Self

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from datalens_service.base.errors import BudgetExceeded
from datalens_service.base.fields import Stated, copied
from datalens_service.base.parsing import PrivacyParameter
from datalens_service.privacy import accounting
from datalens_service.privacy.accounting import Charge
from datalens_service.proof.hash_chain import Entry, EntryKind
from datalens_service.store.schema.tables import AccountRow, DatasetRow, LedgerEntryRow
from datalens_service.store.unopened_uploads import explain_absence


class AccountFigures(BaseModel):
    """An account as ε at its δ, as everybody is told: in answers, problems, metrics and reports."""

    model_config = ConfigDict(frozen=True)

    epsilon_limit: Stated = Field(description="ε of the whole lifetime at `delta`.")
    delta: Stated = Field(description="δ of every statement about this dataset, and of every job on it.")
    epsilon_spent: Stated = Field(description="ε at `delta` of everything released so far, rounded up.")
    epsilon_reserved: Stated = Field(description="ε at `delta` of what is set aside for jobs, rounded up.")
    epsilon_remaining: Stated = Field(
        description="Largest ε a new job may name, rounded down. It is not limit minus spent: μ² adds up, ε does not."
    )


@dataclass(frozen=True)
class AccountSummary:
    """Balance of an account, in units and as ε at its δ: spends rounded up, what remains rounded down.

    A frozen account states what the ledger log knows as spent, also beyond its limit, and that nothing remains.
    """

    account_id: str
    epsilon: float
    delta: float
    limit_units: int
    reserved_units: int
    charged_units: int
    entries: int
    head_hash: str
    frozen_reason: str | None
    unbooked_units: int = 0
    reserved_slack: int = 0
    charged_slack: int = 0
    held_for_slack: int = 0

    @property
    def spent_units(self) -> int:
        """Units charged in the journal, and those that only the ledger log knows."""
        return self.charged_units + self.unbooked_units

    @property
    def remaining_units(self) -> int:
        """Units that a new job may reserve."""
        if self.frozen_reason is not None:
            return 0
        return self.limit_units - self.reserved_units - self.charged_units - self.held_for_slack

    def with_reserved(self, charge: Charge) -> Self:
        """The account once units and slack of a new job are reserved; what they do not leave is below 0."""
        slack = self.reserved_slack + charge.slack
        try:
            held = accounting.ledger_units_held_for_slack(slack + self.charged_slack, self.epsilon, self.delta)
        except BudgetExceeded:
            held = self.limit_units
        reserved = self.reserved_units + charge.ledger_units
        return replace(self, reserved_units=reserved, reserved_slack=slack, held_for_slack=held)

    def covers(self, charge: Charge) -> bool:
        """Return True if units and slack of a new job fit beside all that is spent and reserved."""
        return self.with_reserved(charge).remaining_units >= 0 and charge.ledger_units <= self.remaining_units

    @property
    def epsilon_spent(self) -> PrivacyParameter:
        """ε of everything spent, over all jobs and data sets of the account, deleted ones included."""
        return self.convert_to_epsilon(self.spent_units, self.charged_slack)

    @property
    def epsilon_reserved(self) -> PrivacyParameter:
        """ε of everything reserved and not yet charged."""
        return self.convert_to_epsilon(self.reserved_units, self.reserved_slack)

    @property
    def epsilon_remaining(self) -> PrivacyParameter:
        """Largest ε of four digits whose units are still there: what a new job may ask for."""
        return self.epsilon_remaining_beside(0)

    def epsilon_remaining_beside(self, slack: int) -> PrivacyParameter:
        """The same for a job that sets aside a slack, which takes units of the whole account beside its own."""
        ledger_units = self.with_reserved(Charge(0, slack)).remaining_units
        return accounting.remaining_epsilon(ledger_units, accounting.delta_beside(slack, self.delta))

    def convert_to_epsilon(self, ledger_units: int, slack: int = 0) -> PrivacyParameter:
        """ε of `ledger_units` and `slack` at the account's δ, rounded up to four digits."""
        return accounting.stated_epsilon(Charge(ledger_units, slack), self.delta)

    def figures(self) -> AccountFigures:
        return _convert(self)


@functools.lru_cache(maxsize=2**14)
def _convert(summary: AccountSummary) -> AccountFigures:
    """Kept: metrics ask for all accounts again and again, most of which nothing was charged to meanwhile."""
    return copied(AccountFigures, summary, epsilon_limit=summary.epsilon)


def summarize_account(session: Session, dataset_id: str) -> AccountSummary:
    """Limit, reserved, charged and remaining of the account that pays for a data set."""
    return summarize_row(read_account(session, dataset_id))


def summarize_accounts(session: Session, dataset_ids: Iterable[str]) -> dict[str, AccountSummary]:
    """The same for several data sets, by their ids."""
    query = select(DatasetRow.id, AccountRow).join_from(DatasetRow, AccountRow).where(DatasetRow.id.in_(dataset_ids))
    return {dataset_id: summarize_row(account) for dataset_id, account in session.execute(query)}


def entries(session: Session, dataset_id: str) -> list[Entry]:
    """The whole journal of the account that pays for a data set, oldest first; public."""
    return list(journal(session, read_account(session, dataset_id).id))


def entries_after(
    session: Session, dataset_id: str, after: int, limit: int, kind: EntryKind | None = None
) -> list[Entry]:
    """Entries of the same journal with a number above `after`, oldest first."""
    account_id = read_account(session, dataset_id).id
    query = select(LedgerEntryRow).where(LedgerEntryRow.account_id == account_id, LedgerEntryRow.seq > after)
    if kind is not None:
        query = query.where(LedgerEntryRow.kind == kind)
    rows = session.scalars(query.order_by(LedgerEntryRow.seq).limit(limit))
    return [Entry.model_validate(row) for row in rows]


def read_account(session: Session, dataset_id: str) -> AccountRow:
    """The account that pays for a data set, not locked."""
    account = session.scalars(select(AccountRow).join(DatasetRow).where(DatasetRow.id == dataset_id)).one_or_none()
    if account is None:
        raise explain_absence(session, dataset_id)
    return account


def summarize_row(account: AccountRow) -> AccountSummary:
    return copied(AccountSummary, account, account_id=account.id, entries=account.head_seq)


def journal(session: Session, account_id: str) -> Iterator[Entry]:
    """The entries of an account, oldest first, read in portions; as plain rows, since there may be very many."""
    query = select(*LedgerEntryRow.__table__.columns).where(LedgerEntryRow.account_id == account_id)
    for row in session.execute(query.order_by(LedgerEntryRow.seq).execution_options(yield_per=1000)):
        yield Entry.model_validate(row._asdict())
