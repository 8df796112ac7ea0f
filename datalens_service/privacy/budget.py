"""Accounts in memory: a budget filter for notebooks and tests, and the account of what is never handed out."""

from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import BudgetExceeded, StateConflict
from datalens_service.privacy.accounting import ledger_units_held_for_slack
from datalens_service.privacy.partitioned_passes import Block


@final
class MemoryAccount:
    """Account of one run without a database.

    The filter refuses a charge that would exceed the limit, before anything is drawn. Nothing survives the
    process: a service uses `store.ledger.account.JobAccount`.

    Args:
        limit_units: Ledger units that may be charged.
        budget: The ε and δ that the limit stands for. Without them a sampled run must have the account for itself,
            since the cost of its slack to other releases is unknown.
    """

    def __init__(self, limit_units: int, budget: tuple[float, float] | None = None) -> None:
        self.limit_units = limit_units
        self.charges: list[tuple[int, str, int]] = []
        self.slack = 0
        self._budget = budget
        self._blocks: dict[str, Block] = {}
        self._stored: dict[int, NDArray[np.int64]] = {}
        self._latest: tuple[int, dict[str, NDArray[Any]]] | None = None
        self._iterates: list[NDArray[np.float32]] = []

    @property
    def charged_units(self) -> int:
        return sum(ledger_units for _, _, ledger_units in self.charges)

    def replay(self, step: int) -> NDArray[np.int64] | None:
        return self._stored.get(step)

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        self._check(ledger_units, self.slack + slack)
        self.slack += slack
        self.charges.append((step, label, ledger_units))

    def charge_draw(self, step: int, label: str, block: Block) -> int:
        """Book a draw of a block, and return the number of draws booked before.

        Raises:
            StateConflict: Another block was charged under the same label.
        """
        # All charges under the label of a block are its draws.
        drawn = sum(booked == label for _, booked, _ in self.charges)
        if self._blocks.get(label, block) != block:
            raise StateConflict("Another block of sampled releases was charged to this run.")
        if drawn >= block.draws:
            raise BudgetExceeded("All sampled draws that were paid for are made.")
        ledger_units = 0 if drawn else block.charge().ledger_units
        slack = self.slack if drawn else self.slack + block.slack
        self._check(ledger_units, slack)
        self._blocks[label], self.slack = block, slack
        self.charges.append((step, label, ledger_units))
        return drawn

    def _check(self, ledger_units: int, slack: int) -> None:
        # Without ε and δ the cost of a slack to other releases is unknown, so a block must be the only charge:
        # none may precede its first draw, and none but its own may follow.
        alone = (
            self._budget is not None or not slack or len({label for _, label, _ in self.charges}) <= (ledger_units == 0)
        )
        held = ledger_units_held_for_slack(slack, *self._budget) if self._budget is not None else 0
        if not alone or self.charged_units + ledger_units > self.limit_units - held:
            raise BudgetExceeded("The next release would exceed the budget of this run.")

    def store(self, step: int, noisy: NDArray[np.int64]) -> None:
        """Keep a noisy sum.

        Raises:
            StateConflict: `step` already has one.
        """
        if step in self._stored:
            raise StateConflict(f"Step {step} already has an aggregate.")
        self._stored[step] = noisy

    def advance(self, step: int, state: dict[str, NDArray[Any]], iterates: NDArray[np.float32] | None = None) -> None:
        """Keep `state` and `iterates` in the place of the sums before `step`.

        Raises:
            StateConflict: `step` is not behind that of the state before.
        """
        if self._latest is not None and step <= self._latest[0]:
            raise StateConflict(f"The state before step {step} does not follow what is stored.")
        self._latest = step, state
        self._iterates += [] if iterates is None else [iterates]
        # The state replaces the earlier sums, of which it is a function.
        self._stored = {number: noisy for number, noisy in self._stored.items() if number >= step}

    def latest(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        return self._latest

    def iterates(self) -> list[NDArray[np.float32]]:
        return list(self._iterates)


@final
class UnchargedAccount:
    """Account of a run whose result never leaves the process: it has no limit and keeps no books.

    `jobs/run_audit.py` trains the models that it attacks with one, and `jobs/run_evaluation.py` the baseline of a
    report: what either measures is for the owner alone. Benchmarks use it on public records. A result of such a run has
    no guarantee that anybody else could rely on. `methods/wall_rules.py` keeps methods from importing it.
    """

    def replay(self, step: int) -> None:
        return

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None: ...

    def charge_draw(self, step: int, label: str, block: Block) -> int:
        """Book nothing; a run that ends with its process draws each step once."""
        return step

    def store(self, step: int, noisy: NDArray[np.int64]) -> None: ...

    def advance(
        self, step: int, state: dict[str, NDArray[Any]], iterates: NDArray[np.float32] | None = None
    ) -> None: ...

    def latest(self) -> None:
        return

    def iterates(self) -> list[NDArray[np.float32]]:
        return []
