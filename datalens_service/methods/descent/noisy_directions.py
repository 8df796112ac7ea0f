"""Plans of noisy directions: passes over a partition of the units, with the least noise that fits into ε and δ."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.base.errors import InfeasiblePlan, InvalidSpec
from datalens_service.base.fields import Stated
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import PlannedRelease, VonMisesFisherSum
from datalens_service.mechanisms.von_mises_fisher import GRID, direction_radius
from datalens_service.methods.base import Plan
from datalens_service.privacy.accounting import (
    MINIMUM_NOISE_STDDEV,
    SMOOTHING_VARIANCE,
    round_up,
    smallest_noise_stddev,
)
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.poisson_sampling import LARGEST_UNITS, continuous_multiplier
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

WEAKEST_SIGNAL: Final = 0.2
"""Length of the largest possible sum over that of its noise, below which weights follow noise."""


@dataclass(frozen=True)
class PartitionedRun:
    """The request for a run: batches, steps and units."""

    schema: Schema
    dimensions: int
    batch: int
    steps: int

    @property
    def batches(self) -> int:
        return math.ceil(self.schema.num_units / self.batch)

    @property
    def passes(self) -> int:
        """Return the largest number of draws in which a unit takes part."""
        return math.ceil(self.steps / self.batches)

    def plan(self, kappa: float | None, ledger_units: int) -> Plan:
        """Plan the block with the concentration that is named, or with the largest that fits.

        Args:
            kappa: Concentration of the noise; None calibrates it.
            ledger_units: Ledger units to spend.

        Raises:
            InfeasiblePlan: The passes do not fit into the budget, or the noise is outside what can be drawn.
            InvalidSpec: The batch is larger than the data set, or units of several records were declared.
        """
        self._check()
        if ledger_units < self.passes:
            raise InfeasiblePlan("ε does not pay for the passes: raise ⟦spec.epsilon⟧ or lower ⟦method.steps⟧.")
        stddev = self._calibrated(min(ledger_units, LARGEST_UNITS // 4)) if kappa is None else self.choose_stddev(kappa)
        if stddev > MAXIMUM_NOISE_STDDEV:
            raise InfeasiblePlan(
                "So much noise cannot be drawn: raise ⟦spec.epsilon⟧ or ⟦method.kappa⟧, or lower ⟦method.steps⟧."
            )
        multiplier = continuous_multiplier(Fraction(direction_radius(self.dimensions) ** 2), stddev)
        if 4 * self.passes / multiplier**2 * 1e15 >= LARGEST_UNITS:
            raise InfeasiblePlan(
                "So little noise promises nothing that an account could add up: lower ⟦method.kappa⟧ or ⟦method.steps⟧."
            )
        block = PartitionedPasses.priced(
            multiplier, num_units=self.schema.num_units, batches=self.batches, passes=self.passes
        )
        if block.charge().ledger_units > ledger_units:
            raise InfeasiblePlan(
                "ε does not pay for the passes: raise ⟦spec.epsilon⟧, lower ⟦method.kappa⟧ or ⟦method.steps⟧."
            )
        mechanism = VonMisesFisherSum(dimensions=self.dimensions, partition=block, noise_stddev=stddev)
        return Plan(releases=(PlannedRelease(mechanism=mechanism, count=self.steps),))

    def _check(self) -> None:
        if not 1 <= self.batch <= self.schema.num_units:
            raise InvalidSpec(
                f"⟦method.batch⟧ must lie between 1 and the number of privacy units, {self.schema.num_units:,}."
            )
        if self.batches > 1 and (self.schema.unit != "record" or self.schema.records_per_unit > 1):
            raise InvalidSpec(
                "Batches of a partition are drawn by the position of single records: protect records, or let "
                "⟦method.batch⟧ be all units."
            )

    def _calibrated(self, ledger_units: int) -> int:
        # One unit aside for each pass: the price of a block is rounded up from a multiplier that is rounded down.
        aside = max(ledger_units - self.passes - ledger_units // 10**12, self.passes)
        return smallest_noise_stddev(direction_radius(self.dimensions) ** 2, self.passes, aside)

    def choose_stddev(self, kappa: float) -> int:
        """Return the smallest σ on the account that allows no larger concentration."""
        variance = (GRID / kappa) ** 2 * (self.dimensions - 3) + SMOOTHING_VARIANCE
        return max(MINIMUM_NOISE_STDDEV, math.ceil(math.sqrt(variance)))


class DirectionsSummary(BaseModel):
    """Figures of a plan with noisy directions, rounded towards privacy."""

    model_config = ConfigDict(frozen=True)

    kappa: float = Field(description="Concentration of the noise: density ∝ exp(kappa · cosine).")
    mean_cosine: float = Field(description="Between a direction and its noisy one, on average; approximate.")
    batches: int = Field(description="Batches of one pass; a unit is in one of them.")
    passes: int = Field(description="Passes in which a unit takes part, at most.")
    pure_epsilon: Stated = Field(description="ε at δ = 0 of all passes when a unit is emptied.")
    pure_epsilon_replace_one: Stated = Field(description="The same when a unit is replaced: 2·kappa for each pass.")


def summarize_directions(plan: Plan) -> DirectionsSummary | None:
    """Summarize the noisy directions of a plan; None if it has none."""
    mechanism = plan.releases[0].mechanism
    if not isinstance(mechanism, VonMisesFisherSum):
        return None
    kappa, passes = mechanism.kappa, mechanism.partition.passes
    emptied = kappa + min(kappa, kappa**2 / (2 * (mechanism.dimensions - 1)))
    return DirectionsSummary(
        kappa=round_up(kappa, 6),
        mean_cosine=mean_cosine(kappa, mechanism.dimensions),
        batches=mechanism.partition.batches,
        passes=passes,
        pure_epsilon=round_up(passes * emptied),
        pure_epsilon_replace_one=round_up(passes * 2 * kappa),
    )


def mean_cosine(kappa: float, dimensions: int) -> float:
    """Compute I_{d/2}(κ)/I_{d/2−1}(κ), to a few parts in a million for large d (between the bounds of Amos 1974)."""
    half = (dimensions - 1) / 2
    return kappa / (half + math.hypot(half, kappa))


def drowned_directions(mechanism: VonMisesFisherSum) -> str:
    """Return a warning where noise is much longer than a sum of directions can be, from public numbers; else ""."""
    ratio = mean_cosine(mechanism.kappa, mechanism.dimensions) * math.sqrt(mechanism.partition.batch)
    if ratio >= WEAKEST_SIGNAL:
        return ""
    return (
        f"The noise of a step is {1 / ratio:.0f} times as long as the sum of directions can be. The classifier will "
        "learn little: raise epsilon, or choose noise gaussian, which needs far less."
    )
