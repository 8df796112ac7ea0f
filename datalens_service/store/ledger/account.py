"""A job's account at the ledger: what `Mechanism.release` charges, stores and replays through.

A block of draws is one entry of the journal with its units and its slack, and an entry of 0 units for every further
draw. All that the draws cost is charged before the first, and no more are made than were paid for.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from datalens_service.base.errors import BudgetExceeded, InsufficientStorage, StoreUnavailable
from datalens_service.privacy.accounting import Charge
from datalens_service.privacy.partitioned_passes import Block
from datalens_service.privacy.randomness import Integers
from datalens_service.proof.hash_chain import SPENDS, Entry
from datalens_service.store.charge_log import LogLine
from datalens_service.store.database import Database
from datalens_service.store.ledger import aggregates, ledger, recovery
from datalens_service.store.schema.tables import AccountRow, LedgerEntryRow

_STORE_SECONDS: Final = 300.0
"""Longest wait with a sum that was drawn: longer than a change of a table, a restart or a failover takes."""

_PAUSE_SECONDS: Final = 0.5


class JobAccount:
    """The `Account` of one job under one lease (see `mechanisms.base.Account`).

    Args:
        lease_token: Token of the lease this worker holds; with a later one the worker is refused.
    """

    def __init__(self, database: Database, job_id: str, lease_token: int) -> None:
        self._database = database
        self._job_id = job_id
        self._lease_token = lease_token

    def replay(self, step: int) -> Integers | None:
        """The noisy sum already stored under `step`, or None."""
        with self._database.session() as session:
            return aggregates.replay(session, self._job_id, step)

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        """Book `ledger_units`, and slack once for a step: in the log, then in the database; both are then on the disk.

        Raises:
            StoreUnavailable: Nothing may be drawn; at worst the charge is counted without a draw.
        """
        self._book(partial(ledger.charge, step=step, label=label, ledger_units=ledger_units, slack=slack))

    def charge_draw(self, step: int, label: str, block: Block) -> int:
        """Book a draw of a block as `charge` does: all of its units and its slack with the first; how many came before.

        Raises:
            StoreUnavailable: Nothing may be drawn; at worst the draw is counted and not made.
        """
        booked: list[int] = []

        def book(session: Session, job_id: str, lease_token: int) -> Entry:
            entry = charge_draw(session, job_id, lease_token, step, label, block)
            booked.append(count_draws(session, job_id, label))
            return entry

        self._book(book)
        # The last booking is this draw itself.
        return booked[-1] - 1

    def _book(self, make_entry: Callable[..., Entry]) -> None:
        written: list[tuple[LogLine, int]] = []

        def charge(session: Session) -> None:
            entry = make_entry(session, self._job_id, self._lease_token)
            if self._database.log is not None:
                account = session.get_one(AccountRow, entry.account_id)
                line = LogLine.from_entry(entry)
                account.checked_log_bytes = self._database.log.append(line, account.checked_log_bytes)
                written.append((line, account.checked_log_bytes))

        try:
            recovery.in_step_with_log(self._database, charge)
        except InsufficientStorage:
            for line, end in written:
                recovery.withdraw(self._database, line, end)
            raise

    def store(self, step: int, noisy: Integers) -> None:
        """Keep the noisy sum durably under `step`; at most one is ever accepted.

        It is paid and drawn. A process that ended without it would have the step charged again, so a database that is
        locked or away is waited for.

        Raises:
            StaleLease: Another worker holds the job; the sum must not be used.
            StateConflict: The step is stored already or was not charged by this worker.
            StoreUnavailable: For minutes, the database took nothing.
        """
        deadline, tried = time.monotonic() + _STORE_SECONDS, False
        while True:
            try:
                with self._database.transaction() as session:
                    # A commit whose answer was lost may have happened.
                    if not (tried and self._holds(session, step, noisy)):
                        aggregates.store_aggregate(session, self._job_id, self._lease_token, step, noisy)
                return
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
                tried = True
                time.sleep(_PAUSE_SECONDS)

    def _holds(self, session: Session, step: int, noisy: Integers) -> bool:
        stored = aggregates.replay(session, self._job_id, step)
        return stored is not None and np.array_equal(stored, noisy)

    def advance(self, step: int, state: dict[str, NDArray[Any]], iterates: NDArray[np.float32] | None = None) -> None:
        """Keep `state`, a function of released sums, in the place of all sums before `step`, and beside it `iterates`.

        Raises:
            StateConflict: The state does not follow what is stored.
        """
        with self._database.transaction() as session:
            aggregates.replace_by_state(session, self._job_id, self._lease_token, step, state)
            if iterates is not None:
                aggregates.add_iterates(session, self._job_id, self._lease_token, step, iterates)

    def latest(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """Return what `advance` was given last, or None."""
        with self._database.session() as session:
            return aggregates.read_state(session, self._job_id)

    def iterates(self) -> list[NDArray[np.float32]]:
        """Return all that `advance` was given, in order; empty once the job has ended."""
        with self._database.session() as session:
            return aggregates.read_iterates(session, self._job_id)


def charge_draw(session: Session, job_id: str, lease_token: int, step: int, label: str, block: Block) -> Entry:
    """Book a draw before its batch is known: the whole block with the first, 0 units with the others.

    A step that was charged and not stored is drawn again as one more draw: whether its noise was drawn is not known.

    Raises:
        BudgetExceeded: The reservation does not cover the block, or all draws are made; nothing was booked.
        StateConflict: The step is stored already.
    """
    account, job = ledger.lock_for_charge(session, job_id, lease_token, step)
    # Counted in the journal, which also has the draws that a crash lost.
    drawn = count_draws(session, job_id, label)
    if drawn >= block.draws:
        raise BudgetExceeded(f"All {block.draws:,} draws of the job are made; it has to end before this step.")
    # The first draw pays for all of them: sampled batches have no price of their own.
    price = Charge(0) if drawn else block.charge()
    if price.ledger_units > job.reserved_units or price.slack > ledger.reserved_slack(session, job_id):
        raise BudgetExceeded("The job's reservation does not cover its draws.")
    return ledger.spend(session, account, job, step, label, price)


def count_draws(session: Session, job_id: str, label: str) -> int:
    """Count the draws of a job so far, those that a crash lost included."""
    query = select(func.count()).where(
        LedgerEntryRow.job_id == job_id, LedgerEntryRow.label == label, LedgerEntryRow.kind.in_(SPENDS)
    )
    return session.scalars(query).one()
