"""The journal of an account as a table people can read: equal releases of a job in one row, with a running total.

A page of it is built from a portion of the journal, whose length does not matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Final

from datalens_service.privacy.accounting import Charge, stated_epsilon
from datalens_service.proof.hash_chain import SPENDS, EntryKind
from datalens_service.store.ledger.journal_pages import JournalLine, JournalSlice

MOST_ENTRIES: Final = 1000
"""Number of entries that a page reads."""

_MOST_ROWS: Final = 50
_MEANINGS: Final = {
    EntryKind.OPEN: "Budget opened",
    EntryKind.RAISE: "Budget raised by its owner",
    EntryKind.JOIN: "Joined by an upload with some of the same records",
    EntryKind.RESERVE: "Set aside for a job",
    EntryKind.CHARGE: "Spent on a release",
    EntryKind.RECOVERED: "Spent, found again in the log",
    EntryKind.SETTLE: "Job ended, the rest returned",
    EntryKind.DELETE: "Records deleted",
}


@dataclass(frozen=True)
class JournalRow:
    """Entries of the journal that follow each other and say the same.

    Attributes:
        share: Units of them all, in percent of the limit as it is now.
        epsilon_after: ε of everything spent up to here, rounded up.
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


@dataclass(frozen=True)
class Table:
    """A page of the journal.

    Attributes:
        older: Number of the entry that the next page ends before; None on the last page.
    """

    rows: tuple[JournalRow, ...]
    older: int | None


def build_table(portion: JournalSlice, delta: float) -> Table:
    """Build a table with as many rows as a page holds.

    Equal releases that reach behind the portion are a row of this page and one of the next.
    """
    groups = [list(same) for _, same in groupby(portion.lines, key=lambda line: (line.kind, line.job_id, line.label))]
    rows, spent = [], portion.spent
    for same in groups[:_MOST_ROWS]:
        ledger_units, slack = sum(line.ledger_units for line in same), sum(line.slack for line in same)
        rows.append(_row(same, ledger_units, portion.limit_units, stated_epsilon(spent, delta)))
        if same[0].kind in SPENDS:
            spent = Charge(spent.ledger_units - ledger_units, spent.slack - slack)
    oldest = rows[-1].first if rows else 1
    return Table(tuple(rows), oldest if oldest > 1 else None)


def _row(same: Sequence[JournalLine], ledger_units: int, limit: int, epsilon_after: float) -> JournalRow:
    first, last = same[-1], same[0]
    kind = last.kind
    return JournalRow(
        first=first.seq,
        last=last.seq,
        at=last.at,
        kind=kind,
        meaning="Job ended, nothing was left over"
        if kind is EntryKind.SETTLE and not ledger_units
        else _MEANINGS[kind],
        label=first.label if kind in SPENDS else "",
        job_id=first.job_id,
        count=len(same),
        share=100 * ledger_units / limit if limit else 0.0,
        epsilon_after=epsilon_after,
        hash=last.hash,
    )
