"""The journal of an account as a table people can read: equal releases of a job in one row, with a running total."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from datalens_service.privacy.accounting import epsilon_of_units, round_up
from datalens_service.proof.hash_chain import Entry, EntryKind

_LIMITING: Final = frozenset({EntryKind.OPEN, EntryKind.RAISE})
_SPENDING: Final = frozenset({EntryKind.CHARGE, EntryKind.RECOVERED})
_MEANINGS: Final = {
    EntryKind.OPEN: "Budget opened",
    EntryKind.RAISE: "Budget raised by its owner",
    EntryKind.JOIN: "Joined by another upload of the same records",
    EntryKind.RESERVE: "Set aside for a job",
    EntryKind.CHARGE: "Spent on a release",
    EntryKind.RECOVERED: "Spent, found again in the log",
    EntryKind.SETTLE: "Job ended, the rest returned",
    EntryKind.DELETE: "Records deleted",
}


@dataclass(frozen=True)
class Row:
    """Entries of the journal that follow each other and say the same.

    Attributes:
        first: Number of the first of them.
        last: Number of the last.
        at: Instant of the last.
        kind: What they do to the account.
        meaning: The same in words.
        label: Of the release, or empty.
        job_id: The job they belong to.
        count: How many they are.
        share: Units of them all, in percent of the limit as it is now.
        epsilon_after: ε of everything spent up to here, rounded up.
        hash: Seal of the last.
    """

    first: int
    last: int
    at: datetime
    kind: str
    meaning: str
    label: str
    job_id: str | None
    count: int
    share: float
    epsilon_after: float
    hash: str


def rows(entries: Sequence[Entry], delta: float) -> list[Row]:
    """The journal, newest first.

    Args:
        entries: Oldest first, whole.
        delta: Of the account.
    """
    limit = sum(entry.units for entry in entries if entry.kind in _LIMITING)
    table, spent = [], 0
    for _, group in groupby(entries, key=lambda entry: (entry.kind, entry.job_id, entry.label)):
        same = list(group)
        units = sum(entry.units for entry in same)
        spent += units if same[0].kind in _SPENDING else 0
        table.append(_row(same, units, limit, round_up(epsilon_of_units(spent, delta))))
    return table[::-1]


def _row(same: Sequence[Entry], units: int, limit: int, epsilon_after: float) -> Row:
    first, last = same[0], same[-1]
    kind = EntryKind(first.kind)
    return Row(
        first=first.seq,
        last=last.seq,
        at=last.at,
        kind=kind,
        meaning=_meaning(kind, units),
        label=first.label if kind in _SPENDING else "",
        job_id=first.job_id,
        count=len(same),
        share=100 * units / limit if limit else 0.0,
        epsilon_after=epsilon_after,
        hash=last.hash,
    )


def _meaning(kind: EntryKind, units: int) -> str:
    return "Job ended, nothing was left over" if kind is EntryKind.SETTLE and not units else _MEANINGS[kind]
