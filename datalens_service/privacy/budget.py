"""Accounts in memory: a budget filter for notebooks and tests, and the account of what is never handed out."""

from __future__ import annotations

from typing import final

import numpy as np
from numpy.typing import NDArray

from datalens_service.errors import BudgetExceeded, StateConflict


@final
class MemoryAccount:
    """Account of one run without a database.

    The filter refuses a charge that would pass the limit, before anything is drawn. Nothing survives the
    process: a service uses `store.account.JobAccount`.

    Args:
        limit_units: Ledger units that may be charged.
    """

    def __init__(self, limit_units: int) -> None:
        self.limit_units = limit_units
        self.charges: list[tuple[int, str, int]] = []
        self._stored: dict[int, NDArray[np.int64]] = {}

    @property
    def charged_units(self) -> int:
        """Units charged so far."""
        return sum(units for _, _, units in self.charges)

    def replay(self, step: int) -> NDArray[np.int64] | None:
        """The noisy sum stored under `step`, or None."""
        return self._stored.get(step)

    def charge(self, step: int, label: str, units: int) -> None:
        """Book `units`.

        Raises:
            BudgetExceeded: The limit would be passed; nothing was booked.
        """
        if self.charged_units + units > self.limit_units:
            raise BudgetExceeded("The next release would exceed the budget of this run.")
        self.charges.append((step, label, units))

    def store(self, step: int, noisy: NDArray[np.int64]) -> None:
        """Keep a noisy sum.

        Raises:
            StateConflict: `step` already has one.
        """
        if step in self._stored:
            raise StateConflict(f"Step {step} already has an aggregate.")
        self._stored[step] = noisy


@final
class UnchargedAccount:
    """Account of a run whose result never leaves the process: it has no limit and keeps no books.

    For the owner's baselines and for benchmarks on public records. A result of such a run has no guarantee that
    anybody else could rely on.
    """

    def replay(self, step: int) -> None:
        """Nothing is stored."""
        return

    def charge(self, step: int, label: str, units: int) -> None:
        """Nothing is booked."""

    def store(self, step: int, noisy: NDArray[np.int64]) -> None:
        """Nothing is kept."""
