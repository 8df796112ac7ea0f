"""The bundle of a job: everything that a stranger needs to recompute what it cost. Public, JSON, one file.

It holds the card, the public parameters of every planned mechanism, and the whole journal of the account up to
that moment. No database here: the journal is handed in, and `bundle_verification.py` reads nothing but the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.evaluation.card import Card
from datalens_service.evaluation.report import Product, Report
from datalens_service.evaluation.statement import Release
from datalens_service.privacy.accounting import epsilon_of_units, round_up
from datalens_service.store.chain import Balance, Entry, EntryKind, follow

FORMAT: Final = "datalens-bundle/1"
FILE_NAME: Final = "privacy.json"

# What a database counts up to; keeps the numbers of a forged bundle printable.
_LARGEST_UNITS: Final = 2**63 - 1


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Head(_Frozen):
    """Where the chain ends; whoever notes it can tell later that the chain was not rewritten."""

    seq: int = Field(ge=1)
    hash: str


class AccountFacts(_Frozen):
    """What the journal adds up to."""

    id: str
    epsilon: float = Field(gt=0, description="Lifetime limit at δ.")
    delta: float = Field(gt=0, lt=1)
    epsilon_spent: float = Field(ge=0, description="Of everything charged, rounded up.")
    limit_units: int = Field(ge=0, le=_LARGEST_UNITS)
    reserved_units: int = Field(ge=0, le=_LARGEST_UNITS)
    charged_units: int = Field(ge=0, le=_LARGEST_UNITS)
    head: Head

    @classmethod
    def of(cls, account_id: str, epsilon: float, delta: float, balance: Balance) -> AccountFacts:
        """The account at the end of its journal."""
        return cls(
            id=account_id,
            epsilon=epsilon,
            delta=delta,
            epsilon_spent=round_up(epsilon_of_units(balance.total_charged, delta)),
            limit_units=balance.limit,
            reserved_units=balance.total_reserved,
            charged_units=balance.total_charged,
            head=Head(seq=balance.head_seq, hash=balance.head_hash),
        )


class Bundle(_Frozen):
    """What `datalens verify` reads."""

    format: Literal["datalens-bundle/1"] = FORMAT
    product: Product
    job_id: str
    card: Card
    plan: tuple[Release, ...] = Field(min_length=1, description="All releases that were planned, in order.")
    account: AccountFacts
    entries: tuple[Entry, ...] = Field(min_length=1, description="The whole journal up to now, oldest first.")

    @property
    def releasable(self) -> bool:
        """Whether nothing in it depends on private records.

        A `join` does: it says that two uploads share one (docs/decisions/0003-one-account-per-content.md).
        """
        return all(entry.kind != EntryKind.JOIN for entry in self.entries)


def bundle_of(job_id: str, report: Report, entries: Iterable[Entry], epsilon: float, delta: float) -> Bundle:
    """Put the bundle of a job together.

    Args:
        job_id: The job; it has made all its releases.
        report: Of the job. Only what is on its card enters, and the plan.
        entries: The whole journal of the account that paid, oldest first.
        epsilon: Lifetime budget of the account.
        delta: Of the account.

    Raises:
        LedgerCorrupt: The journal does not add up.
    """
    journal = tuple(entries)
    return Bundle(
        product=report.product,
        job_id=job_id,
        card=Card.of(report),
        plan=report.method.plan,
        account=AccountFacts.of(journal[0].account_id, epsilon, delta, follow(journal)),
        entries=journal,
    )
