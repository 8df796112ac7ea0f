"""The only door from private to public.

A mechanism turns contributions of privacy units into one integer sum with a proved L2 sensitivity. `release`
is final: it charges the account durably, sums, draws exact noise for every coordinate, stores the noisy sum, and
hands out a function of that sum alone.

Whatever anybody but the owner sees of private records goes through this door. `docs/architecture.md` names the callers
that draw noise without a charge, and says why that is safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Generic, Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV, Charge, NeighboringRelation, cost_ledger_units
from datalens_service.privacy.partitioned_passes import Block
from datalens_service.privacy.poisson_sampling import continuous_multiplier
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, Booleans, Integers, NoiseSource

Contributions = TypeVar("Contributions")
Released = TypeVar("Released")


class Account(Protocol):
    """The accounting that a mechanism needs: charge before the draw, store after it, replay on resume."""

    def replay(self, step: int) -> Integers | None:
        """Return the noisy sum that is already stored under `step`, or None."""

    def charge(self, step: int, label: str, ledger_units: int, slack: int = 0) -> None:
        """Book `ledger_units` and `slack` durably, before anything is drawn; a step's slack is booked once.

        Raises:
            BudgetExceeded: The reservation does not cover the charge; nothing was booked.
            StaleLease: Another worker holds the job; nothing was booked.
        """

    def charge_draw(self, step: int, label: str, block: Block) -> int:
        """Book a draw of a block durably: all of its units and its slack with the first, nothing with the others.

        Returns:
            The number of draws booked before, those that a crash lost included.

        Raises:
            BudgetExceeded: The reservation does not cover the block, or all of its draws are made.
            StaleLease: Another worker holds the job; nothing was booked.
        """

    def store(self, step: int, noisy: Integers) -> None:
        """Keep the noisy sum durably under `step`, which accepts one sum and never another."""

    def advance(self, step: int, state: dict[str, NDArray[Any]], iterates: NDArray[np.float32] | None = None) -> None:
        """Keep a function of all sums before `step` in the place of these sums, which are dropped.

        Args:
            step: The step that comes next.
            state: Released numbers alone.
            iterates: (steps, weights) the weights at which the dropped sums were taken, of a job that keeps them.
        """

    def latest(self) -> tuple[int, dict[str, NDArray[Any]]] | None:
        """Return the step and state that `advance` kept last, or None."""

    def iterates(self) -> list[NDArray[np.float32]]:
        """Return all iterates that `advance` kept, in order, until the job has ended."""


@dataclass(frozen=True)
class Example:
    """A small mechanism with two neighboring inputs; the contract tests and the privacy gate try every one.

    Attributes:
        mechanism: With small public parameters.
        contributions: Argument of `Mechanism.exact_sum`.
        neighbor: The same with one unit emptied, so that the sums lie as far apart as any.
        not_finite: The first with more units, whose numbers are not finite; its sum must be the same.
        tightness: Part of the declared sensitivity that they reach at least; less than 1 where rounding is allowed for.
    """

    mechanism: Mechanism[Any, Any]
    contributions: Any
    neighbor: Any
    not_finite: Any
    tightness: Fraction = Fraction(1)


class Mechanism(BaseModel, ABC, Generic[Contributions, Released]):
    """A Gaussian release of an integer sum.

    Subclasses prove two sentences: `exact_sum` of neighbouring data sets differs by at most
    `sensitivity_squared` in squared L2 norm per query, and one unit influences at most `queries_per_unit` queries of a
    release.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger_label: ClassVar[str]
    """The name in the ledger, unless `label` makes it from parameters."""

    noise_stddev: int = Field(ge=MINIMUM_NOISE_STDDEV, le=MAXIMUM_NOISE_STDDEV)

    def label(self) -> str:
        """Return the public name of the release in the ledger."""
        return self.ledger_label

    @abstractmethod
    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        """Return the exact squared L2 sensitivity of one query under `relation`."""

    def queries_per_unit(self, relation: NeighboringRelation) -> int:
        """Return how many queries of one release a single unit can influence; here the whole sum is one query."""
        return 1

    @abstractmethod
    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        """Tell whether the price covers units within these public bounds. Every mechanism has to decide this itself.

        Args:
            records_per_unit: Largest number of records of one unit.
            classes_per_unit: Largest number of classes that records of one unit belong to.
        """

    @classmethod
    @abstractmethod
    def example_contributions(cls) -> Example:
        """Return neighbours that attain the sensitivity. Every mechanism has to bring its own."""

    @abstractmethod
    def exact_sum(self, contributions: Contributions) -> Integers:
        """Return the sum without noise, which is private."""

    @abstractmethod
    def decode(self, noisy: Integers) -> Released:
        """Turn the noisy sum into what is handed out, by means of public values alone."""

    def images_voted_on(self) -> int:
        """Return the number of synthetic images that teachers vote on in one release; 0 for statistics."""
        return 0

    def slack_beside(self) -> int:
        """Return the part of δ, in 1e-18, charged with the first release although Gaussian releases need none."""
        return 0

    def block(self) -> Block | None:
        """Return the block of all releases if batches are drawn, which are then charged together; else None."""
        return None

    def noisy_sum(self, contributions: Contributions, batch: Booleans, noise: NoiseSource) -> Integers:
        """Sum one batch of a block and add discrete Gaussian noise of `noise_stddev` to every coordinate.

        Only a mechanism whose noise is part of each contribution, and which proves its own price, overrides this.
        Nothing is charged here: `release` calls it after the charge, and `audits/inversion.py` for the owner's eyes.
        `methods/wall_rules.py` refuses the name in methods.

        Args:
            contributions: Private, of the units in `batch`.
            batch: bool (num_units,).
            noise: From OS entropy.
        """
        exact = self.exact_sum(contributions)
        return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)

    @final
    def cost(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> int:
        """Return the ledger units of one release under `relation`, or of the whole block where batches are sampled."""
        return self.price(1, relation).ledger_units

    @final
    def price(self, count: int, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> Charge:
        """Return the charge for `count` releases; a block costs the same however few of its draws are made."""
        block = self.block()
        if block is not None:
            return block.charge(relation)
        queries = self.queries_per_unit(relation)
        # Rounded up per query before it is multiplied: a plan costs exactly what its single charges book.
        ledger_units = count * cost_ledger_units(self.sensitivity_squared(relation), self.noise_stddev, queries)
        return Charge(ledger_units, self.slack_beside())

    @final
    def noise_multiplier(self) -> float:
        """Return σ/C of the continuous noise, rounded down, where C bounds the contribution of a unit."""
        return continuous_multiplier(self.sensitivity_squared(NeighboringRelation.ZERO_OUT), self.noise_stddev)

    @final
    def release(
        self, contributions: Callable[..., Contributions], *, step: int, account: Account, noise: NoiseSource
    ) -> Released:
        """Charge, sum, draw, store and hand out; or hand out again what is already stored under `step`.

        Guarantee: the release costs `cost(relation)` units of μ², for every value the contributions may take. All
            releases of a block together cost `block().charge(relation)`.

        Args:
            contributions: Reads private records; called only if the step has to be computed. Where batches are drawn it
                gets one, bool (num_units,), and answers for the units in it.
            step: Number of this release within its job.
            account: The job's account at the data set's ledger.
            noise: From OS entropy.

        Raises:
            BudgetExceeded: The budget does not cover this release; nothing was summed or drawn.
        """
        # A stored sum was released already: handing it out again costs nothing, a second draw of noise would.
        noisy = account.replay(step)
        if noisy is None:
            noisy = self._charge_and_draw(contributions, step, account, noise)
            # Stored before it is used, so that after a crash nobody gets this step with other noise.
            account.store(step, noisy)
        return self.decode(noisy)

    @final
    def _charge_and_draw(
        self, contributions: Callable[..., Contributions], step: int, account: Account, noise: NoiseSource
    ) -> Integers:
        block = self.block()
        if block is None:
            # Before anything is summed: whether a sum can be made at all may depend on the records.
            account.charge(step, self.label(), self.cost(), self.slack_beside())
            exact = self.exact_sum(contributions())
            return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
        # The plan states the price, so that all processes book the same integers; it is not taken on trust.
        block.check_price(self.noise_multiplier())
        # The account numbers the draws: one that a crash lost counts, and is not made again.
        draw = account.charge_draw(step, self.label(), block)
        # Coins are privacy randomness, like noise: nobody sees them, and they end with this call.
        batch = block.draw_batch(draw, noise)
        return self.noisy_sum(contributions(batch), batch, noise)

    @final
    def describe(self) -> dict[str, Any]:
        """Return the public parameters and costs, for plan, card and report."""
        return {
            "mechanism": self.label(),
            **self.model_dump(mode="json"),
            "sensitivity_squared": str(self.sensitivity_squared(NeighboringRelation.ZERO_OUT)),
            "units_zero_out": self.cost(NeighboringRelation.ZERO_OUT),
            "units_replace_one": self.cost(NeighboringRelation.REPLACE_ONE),
        }
