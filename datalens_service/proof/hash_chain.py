"""The journal as a chain: the entries, the seal of each over the one before it, and the balance of a whole chain.

    hash = SHA-256(canonical JSON of all other fields, which include the previous hash)

So nothing can be altered, removed from the middle, inserted or reordered without breaking a link, and anybody who
holds an earlier head (`seq`, `hash`) can tell that the chain was not rewritten since. No database here: the same
code checks an exported journal.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC
from enum import StrEnum
from typing import Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from datalens_service.base.errors import DatalensError, LedgerCorrupt
from datalens_service.privacy.accounting import ledger_units_held_for_slack

GENESIS = "0" * 64
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_LABEL = re.compile(r"epsilon=([0-9.e+-]+) delta=([0-9.e+-]+)")


class EntryKind(StrEnum):
    """The effect of an entry on the account."""

    OPEN = "open"
    """The account exists with a limit of `ledger_units`; always and only the first entry."""
    RAISE = "raise"
    """The owner raised the limit by `ledger_units`; what was spent stays spent."""
    JOIN = "join"
    """Another data set shares records with the account and is paid by it from now on."""
    RESERVE = "reserve"
    """`ledger_units` are set aside for a job."""
    CHARGE = "charge"
    """`ledger_units` of the job's reservation are spent; written before anything is drawn."""
    RECOVERED = "recovered"
    """`ledger_units` that the log outside the database knows as charged and the database did not."""
    SETTLE = "settle"
    """`ledger_units` that a job reserved and did not spend return; its end."""
    DELETE = "delete"
    """The records of a data set were deleted; what was spent on them stays spent."""


SPENDS: Final = (EntryKind.CHARGE, EntryKind.RECOVERED)
"""Entries of a journal that spend."""


class Entry(BaseModel):
    """One sealed line of the journal."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", from_attributes=True, serialize_by_alias=True, validate_by_name=True
    )

    account_id: str
    seq: int = Field(ge=1)
    kind: str
    dataset_id: str | None = None
    job_id: str | None = None
    step: int | None = None
    label: str = ""
    ledger_units: int = Field(default=0, ge=0, alias="units")
    slack: int = Field(
        default=0,
        ge=0,
        # Left out where it is 0: journals without one keep their hashes.
        exclude_if=operator.not_,
        description="Beside the units, in 1e-18 of δ; 0 unless batches are sampled.",
    )
    lease_token: int | None = None
    at: AwareDatetime
    recovers: str | None = Field(default=None, description="Hash of the lost entry that this one books again.")
    previous_hash: str
    hash: str

    @classmethod
    def sealed(cls, **fields: Any) -> Entry:
        """Return the entry of `fields` (all but `hash`) with its hash."""
        draft = cls(**fields, hash="")
        return draft.model_copy(update={"hash": draft.computed_hash()})

    def computed_hash(self) -> str:
        """Compute the hash of the other fields."""
        # As `model_dump` would give them, at a third of the time: a start computes the hashes of all of history.
        fields = {name: value for name, value in vars(self).items() if name != "hash" and (name != "slack" or value)}
        fields["units"] = fields.pop("ledger_units")
        fields["at"] = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        return hashlib.sha256(_CANONICAL.encode(fields).encode()).hexdigest()


@dataclass
class Balance:
    """The balance of a chain, entry by entry.

    Attributes:
        limit: Units the account holds.
        reserved: Units set aside and not spent, per job; 0 after a job is settled.
        charged: Units spent, per job; recovered charges of unknown jobs count under their id as well.
        total_reserved: Units set aside for all jobs.
        total_charged: Units spent by all jobs.
        total_slack: Slack spent by all jobs and set aside for them.
        budget: ε and δ as the first entry or the last raise names them.
    """

    limit: int = 0
    total_reserved: int = 0
    total_charged: int = 0
    total_slack: int = 0
    reserved: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    charged: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    reserved_slack: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    charged_slack: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    head_seq: int = 0
    head_hash: str = GENESIS
    budget: str = ""

    @property
    def held_for_slack(self) -> int:
        """Return the units by which the slack lowers what the budget holds.

        Raises:
            BudgetExceeded: The slack is more than half of δ.
        """
        return ledger_units_held_for_slack(self.total_slack, *_budget(self.budget)) if self.total_slack else 0

    def add(self, entry: Entry) -> None:
        """Follow one entry.

        Raises:
            LedgerCorrupt: It does not fit behind the previous ones; its number is in the sentence and in `extra`.
        """
        # First the link, so that nothing of an altered entry is booked.
        self._check_link(entry)
        self.head_seq, self.head_hash = entry.seq, entry.hash
        self._book(entry)
        # An entry books one job; the others were looked at with theirs, and there may be thousands.
        job = entry.job_id or ""
        if self.reserved.get(job, 0) < 0 or self.reserved_slack.get(job, 0) < 0:
            raise broken(entry.account_id, entry.seq, "spends or returns more than its job reserved")
        if self.total_reserved + self.total_charged > self.limit - self._held(entry):
            raise broken(entry.account_id, entry.seq, "exceeds the limit of the account")

    def _held(self, entry: Entry) -> int:
        try:
            return self.held_for_slack
        except DatalensError as error:
            raise broken(entry.account_id, entry.seq, "takes more than half of δ for sampled batches") from error

    def _check_link(self, entry: Entry) -> None:
        if entry.seq != self.head_seq + 1:
            raise broken(entry.account_id, self.head_seq + 1, "is missing")
        if entry.hash != entry.computed_hash():
            raise broken(entry.account_id, entry.seq, "was altered: its content does not match its hash")
        if entry.previous_hash != self.head_hash:
            raise broken(entry.account_id, entry.seq, "does not follow the entry before it")
        # A second opening would set the limit anew, with all charges forgotten.
        if (entry.kind == EntryKind.OPEN) != (entry.seq == 1):
            raise broken(entry.account_id, entry.seq, "opens an account in the wrong place")

    def _book(self, entry: Entry) -> None:
        job = entry.job_id or ""
        match entry.kind:
            case EntryKind.OPEN:
                self.limit, self.budget = entry.ledger_units, entry.label
            case EntryKind.RAISE:
                self._raise_limit(entry)
            case EntryKind.RESERVE:
                self._reserve(job, entry.ledger_units, entry.slack)
            case EntryKind.CHARGE:
                self._spend(job, entry, entry.ledger_units, entry.slack)
            case EntryKind.RECOVERED:
                # The charge was made, whether its reservation is still known or not: it takes what is there.
                reserved = min(entry.ledger_units, self.reserved[job]), min(entry.slack, self.reserved_slack[job])
                self._spend(job, entry, *reserved)
            case EntryKind.SETTLE:
                self._reserve(job, -entry.ledger_units, -entry.slack)
            case EntryKind.JOIN | EntryKind.DELETE:
                pass
            case _:
                raise broken(entry.account_id, entry.seq, "is of an unknown kind")

    def _reserve(self, job: str, ledger_units: int, slack: int) -> None:
        """Set aside units, or take them back if below 0; totals are kept to save summing all jobs for each entry."""
        self.reserved[job] += ledger_units
        self.reserved_slack[job] += slack
        self.total_reserved += ledger_units
        self.total_slack += slack

    def _spend(self, job: str, entry: Entry, reserved_units: int, reserved_slack: int) -> None:
        """Book a charge, of which so much was reserved."""
        self._reserve(job, -reserved_units, -reserved_slack)
        self.charged[job] += entry.ledger_units
        self.charged_slack[job] += entry.slack
        self.total_charged += entry.ledger_units
        self.total_slack += entry.slack

    def _raise_limit(self, entry: Entry) -> None:
        """Raise the limit; a raise adds something, names a larger ε, and leaves δ as it is."""
        (epsilon, delta), (before, same) = _budget(entry.label), _budget(self.budget)
        if entry.ledger_units < 1 or epsilon <= before or delta != same:
            raise broken(entry.account_id, entry.seq, "does not raise the limit")
        self.limit += entry.ledger_units
        self.budget = entry.label


def follow(entries: Iterable[Entry]) -> Balance:
    """Walk through a whole chain.

    Args:
        entries: All entries of one account, in the order of `seq`.

    Raises:
        LedgerCorrupt: Names the first entry that is missing, altered, out of place or over the limit.
    """
    balance = Balance()
    for entry in entries:
        balance.add(entry)
    return balance


def broken(account_id: str, seq: int, complaint: str) -> LedgerCorrupt:
    """Return the error that names entry `seq`."""
    return LedgerCorrupt(
        f"Entry {seq} of account {account_id} {complaint}; nothing may be released from it.",
        extra={"account_id": account_id, "entry": seq},
    )


def budget_label(epsilon: float, delta: float) -> str:
    """Return the label of the first entry, which binds ε and δ of the account into its chain."""
    # By repr, which reads back as the same double.
    return f"epsilon={epsilon!r} delta={delta!r}"


def _budget(label: str) -> tuple[float, float]:
    """Read ε and δ of a label; any other label holds nothing."""
    match = _LABEL.fullmatch(label)
    try:
        return (float(match[1]), float(match[2])) if match else (0.0, 0.0)
    except ValueError:
        return 0.0, 0.0
