"""The only door from private to public.

A mechanism turns contributions of privacy units into one integer sum with a proved L2 sensitivity. `release`
is final: it charges the account durably, draws exact noise for every coordinate, stores the noisy sum, and
hands out a function of that sum alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Protocol, TypeVar, final

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.privacy.accounting import MINIMUM_NOISE_STDDEV, NeighboringRelation, cost_units
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV, Integers, NoiseSource

Contributions = TypeVar("Contributions")
Released = TypeVar("Released")


class Account(Protocol):
    """What a mechanism needs from the books: charge before the draw, store after it, replay on resume."""

    def replay(self, step: int) -> Integers | None:
        """The noisy sum already stored under `step`, or None."""

    def charge(self, step: int, label: str, units: int) -> None:
        """Book `units` durably before anything is drawn.

        Raises:
            BudgetExceeded: The reservation does not cover the charge; nothing was booked.
            StaleLease: Another worker holds the job; nothing was booked.
        """

    def store(self, step: int, noisy: Integers) -> None:
        """Keep the noisy sum durably under `step`; at most one is ever accepted."""


@dataclass(frozen=True)
class Example:
    """A small mechanism with two neighboring inputs; the contract tests and the privacy gate try every one.

    Attributes:
        mechanism: With small public parameters.
        contributions: What `exact_sum` takes.
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

    Subclasses prove two sentences: `total` of neighbouring data sets differs by at most `sensitivity_squared`
    in squared L2 norm per query, and one unit influences at most `queries_per_unit` queries of a release.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    noise_stddev: int = Field(ge=MINIMUM_NOISE_STDDEV, le=MAXIMUM_NOISE_STDDEV)

    @abstractmethod
    def label(self) -> str:
        """Name of the release in the ledger; public."""

    @abstractmethod
    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        """Squared L2 sensitivity of one query under `relation`, exact."""

    @abstractmethod
    def queries_per_unit(self, relation: NeighboringRelation) -> int:
        """How many queries of one release a single unit can influence."""

    @abstractmethod
    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        """Whether the price is that of units with these public bounds; there is no default.

        Args:
            records_per_unit: Largest number of records of one unit.
            classes_per_unit: Largest number of classes that records of one unit belong to.
        """

    @classmethod
    @abstractmethod
    def example_contributions(cls) -> Example:
        """Neighbors that attain the sensitivity; there is no default."""

    @abstractmethod
    def exact_sum(self, contributions: Contributions) -> Integers:
        """The un-noised sum; private."""

    @abstractmethod
    def decode(self, noisy: Integers) -> Released:
        """What is handed out: a function of the noisy sum and public values alone."""

    def images_voted_on(self) -> int:
        """Synthetic images that teachers vote on in one release; 0 for statistics."""
        return 0

    @final
    def cost(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> int:
        """Ledger units of one release under `relation`."""
        return cost_units(self.sensitivity_squared(relation), self.noise_stddev, self.queries_per_unit(relation))

    @final
    def release(
        self,
        contributions: Callable[[], Contributions],
        *,
        step: int,
        account: Account,
        noise: NoiseSource,
    ) -> Released:
        """Charge, draw, store, hand out; or hand out again what is already stored under `step`.

        Guarantee: `cost(relation)` units of μ², for every value the contributions may take.

        Args:
            contributions: Called only if the step has to be computed; reads private records.
            step: Number of this release within its job.
            account: The job's account at the data set's ledger.
            noise: Exact noise from OS entropy.

        Raises:
            BudgetExceeded: The budget does not cover this release; nothing was drawn.
        """
        noisy = account.replay(step)
        if noisy is None:
            exact = self.exact_sum(contributions())
            account.charge(step, self.label(), self.cost())
            noisy = exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
            account.store(step, noisy)
        return self.decode(noisy)

    @final
    def describe(self) -> dict[str, Any]:
        """Public parameters for plan, card and report."""
        return {
            "mechanism": self.label(),
            **self.model_dump(mode="json"),
            "sensitivity_squared": str(self.sensitivity_squared(NeighboringRelation.ZERO_OUT)),
            "units_zero_out": self.cost(NeighboringRelation.ZERO_OUT),
            "units_replace_one": self.cost(NeighboringRelation.REPLACE_ONE),
        }
