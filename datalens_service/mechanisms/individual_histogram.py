"""Histogram of individual ε: how the realised ε of all privacy units are spread, as noisy counts.

Given released iterates, a unit's ε is a function of that unit alone, so a unit stands in one bin. It takes the place of
the mean and the quantiles that Yu et al. 2022 (appendix E) release one by one. Claim, proof and tests:
docs/mechanisms/individual_histogram.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar, Final, Literal, NamedTuple, Self, final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.base.arrays import Floats
from datalens_service.base.fields import Stated
from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.confined import refused
from datalens_service.mechanisms.exact_sum import ExactSum
from datalens_service.privacy.accounting import NeighboringRelation, round_up
from datalens_service.privacy.randomness import Integers

DEFAULT_NOISE_STDDEV: Final = 100
"""Enough for statistics within 1.5 % on 60,000 units, at 0.14 % of a budget of ε = 1 and δ = 1e-5."""


_QUANTILES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)


class IndividualEpsilons(NamedTuple):
    """Private contributions: the realised ε of every unit at released iterates."""

    epsilons: Floats
    """(units,) one number per unit. A unit whose number is not finite stands in no bin."""
    units: Integers
    """(units,) identities, none of them twice."""


@final
class IndividualHistogram(Mechanism[IndividualEpsilons, Integers]):
    """Noisy number of units per bin of individual ε.

    Formal guarantee: a unit adds 1 to one bin or nothing. Zero-out: Δ² = 1. Replace-one: the unit moves to another
    bin, Δ² = 2. Bins are public: they end at the ε of the job, never at the largest ε of a unit.
    """

    ledger_label: ClassVar[str] = "individual.histogram"
    name: Literal["individual_histogram"] = "individual_histogram"
    num_units: int = Field(ge=1, description="n, public: what counts are shares of.")
    largest_epsilon: float = Field(gt=0, allow_inf_nan=False, description="ε of the job, public: where bins end.")
    delta: float = Field(gt=0, lt=1, description="δ at which every ε is meant, public.")
    every: int = Field(
        default=1, ge=1, description="Gradients at every so many iterates; they stand for the steps up to the next."
    )
    bins: int = Field(default=64, ge=2, le=2**16, description="Number of bins, which have equal width and begin at 0.")

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        return Fraction(2 if relation == NeighboringRelation.REPLACE_ONE else 1)

    @classmethod
    def example_contributions(cls) -> Example:
        values, units = np.array([9.0, np.nan, np.inf]), np.arange(3)
        one, none = (IndividualEpsilons(values[:count], units[:count]) for count in (1, 0))
        mechanism = cls(num_units=3, largest_epsilon=1.0, delta=1e-5, bins=4, noise_stddev=DEFAULT_NOISE_STDDEV)
        return Example(mechanism, one, none, IndividualEpsilons(values, units))

    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        return True

    def exact_sum(self, contributions: IndividualEpsilons) -> Integers:
        """Count the units in each bin, as int64 (bins,).

        Raises:
            ContributionFailed: A unit occurs twice, or numbers and units differ in length.
        """
        epsilons, units = contributions
        if epsilons.shape != units.shape or len(np.unique(units)) != len(units):
            raise refused("Every unit has one individual ε.")
        finite = epsilons[np.isfinite(epsilons)]
        # Clipped before it becomes an integer: a large float has none.
        places = np.clip(finite / self.largest_epsilon * self.bins, 0, self.bins - 1).astype(np.int64)
        exact = ExactSum((self.bins,), 1)
        exact.add_at(places, 1)
        return exact.total

    def decode(self, noisy: Integers) -> Integers:
        return noisy

    def shares(self, noisy: Integers) -> Floats:
        """Return the shares of units (bins,) nearest to the noisy counts, at least 0 and together 1."""
        return _nearest_shares(noisy / self.num_units)


class Quantile(BaseModel):
    """A quantile: a part of all units has at most this individual ε."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    part: float = Field(ge=0, le=1)
    epsilon: Stated = Field(ge=0)


# Figures are rounded up to four digits, in version 1.0 to the nearest; other processors add up floats in another order.
_AGREEMENT: Final = 1.01e-4


class IndividualFigures(BaseModel):
    """A released histogram of individual ε, and what follows from it alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noisy_counts: tuple[int, ...] = Field(description="Released numbers of units per bin, with noise.")
    largest_epsilon: Stated = Field(description="Bins are of equal width, from 0 to this ε.")
    mean: Stated = Field(ge=0, description="Mean realised individual ε, from the counts.")
    quantiles: tuple[Quantile, ...] = Field(description="The same for quantiles.")

    @classmethod
    def from_counts(cls, mechanism: IndividualHistogram, noisy: Integers) -> Self:
        """Derive the figures: the mean puts units at the middle of their bin, quantiles spread them evenly."""
        shares, largest = mechanism.shares(noisy), mechanism.largest_epsilon
        edges, below = np.linspace(0.0, largest, len(shares) + 1), np.concatenate([[0.0], np.cumsum(shares)])
        quantiles = map(round_up, np.interp(np.array(_QUANTILES) * below[-1], below, edges).tolist())
        return cls(
            noisy_counts=tuple(noisy.tolist()),
            largest_epsilon=largest,
            mean=round_up(float(shares @ (edges[1:] + edges[:-1]) / 2)),
            quantiles=tuple(Quantile(part=part, epsilon=one) for part, one in zip(_QUANTILES, quantiles, strict=True)),
        )

    def agrees_with(self, other: IndividualFigures) -> bool:
        """Tell whether two sets of figures are equal but for rounding."""
        exact = (self.noisy_counts, self.largest_epsilon) == (other.noisy_counts, other.largest_epsilon)
        mine, others = ({each.part: each.epsilon for each in one.quantiles} for one in (self, other))
        if not exact or mine.keys() != others.keys():
            return False
        pairs = [(self.mean, other.mean), *((mine[part], others[part]) for part in mine)]
        return all(abs(one - two) <= _AGREEMENT for one, two in pairs)


def _nearest_shares(values: Floats) -> Floats:
    """Project onto the probability simplex (Duchi et al. 2008, figure 1)."""
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(descending > excess)[-1])
    shares: Floats = np.maximum(values - excess[last], 0.0)
    return shares
