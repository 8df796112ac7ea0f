"""Moments: noisy sums of bounded vectors and of their outer products, per class or pooled.

Vectors are rounded to an integer grid; the rounding is inside the sensitivity, so the sum is an exact integer
and the noise an exact discrete Gaussian. Claim, proof and tests: docs/mechanisms/moments.md.
"""

import math
import operator
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, NamedTuple, final

import numpy as np
from pydantic import Field

from datalens_service.base.arrays import Floats
from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.exact_sum import ExactSum, check_range
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import Integers

# Squares of so long rows stay exact in float64 for 2^29 records.
_LARGEST_RADIUS = 2**12


class GroupedVectors(NamedTuple):
    """Private contributions: one row per record."""

    values: Floats
    """(records, dimensions); rows longer than 1 are scaled back to length 1, rows not finite become 0."""
    groups: Integers
    """(records,) class of each record, in [0, num_groups); all 0 when pooled."""
    units: Integers
    """(records,) identity of each record's unit; at most `records_per_unit` records of one unit count."""


class BoundedSum(Mechanism[GroupedVectors, Floats]):
    """The grid and its radius, which first and second moments share."""

    num_groups: int = Field(ge=1, description="Classes that are summed apart; 1 = pooled.")
    dimensions: int = Field(ge=1)
    records_per_unit: int = Field(default=1, ge=1, description="Largest number of records of one unit.")
    grid: int = Field(default=2048, ge=1, le=_LARGEST_RADIUS // 2, description="Grid steps per unit length.")

    @property
    def radius(self) -> int:
        """Return an integer bound of a vector's L2 norm on the grid: rounding moves it by at most √d/2."""
        return self.grid + math.isqrt(self.dimensions) // 2 + 1

    @classmethod
    def example_contributions(cls) -> Example:
        values = np.array([[7.0, 0.0, 0.0], [np.nan, 0.0, 0.0], [0.0, np.inf, 0.0]])
        groups, units = np.zeros(3, dtype=np.int64), np.arange(3)
        one, none, vectors = (GroupedVectors(values[:n], groups[:n], units[:n]) for n in (1, 0, 3))
        mechanism = cls(num_groups=2, dimensions=3, noise_stddev=10_000_000)
        return Example(mechanism, one, none, vectors, Fraction(99, 100))

    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        """A record enters one block of the sum, so the number of classes does not matter."""
        return self.records_per_unit == records_per_unit

    def on_grid(self, values: Floats) -> Floats:
        """Round rows to whole numbers (held in float64) with L2 norm at most `radius`."""
        finite = np.isfinite(values).all(axis=1, keepdims=True)
        values = np.where(finite, values, 0.0)
        norms = np.linalg.norm(values, axis=1, keepdims=True)
        rounded = np.rint(values * (self.grid / np.maximum(norms, 1.0)))
        # The proof of the bound does not trust floating point: rows that break it in exact integers vanish.
        squared = np.einsum("ij,ij->i", rounded, rounded)
        return np.asarray(np.where(squared[:, None] <= float(self.radius**2), rounded, 0.0))

    def _parts(self, contributions: GroupedVectors) -> list[Floats]:
        """Return the rows on the grid, by group, of the first `records_per_unit` records of every unit."""
        # By the place within its own unit, so that the records of others decide nothing.
        counted = position_in_unit(contributions.units) < self.records_per_unit
        rows = self.on_grid(contributions.values)
        return [rows[counted & (contributions.groups == group)] for group in range(self.num_groups)]


def position_in_unit(units: Integers) -> Integers:
    """Count, for each record, the records of its unit that come before it."""
    order = np.argsort(units, kind="stable")
    ordered = units[order]
    first = np.searchsorted(ordered, ordered, side="left")
    positions = np.empty(len(units), dtype=np.int64)
    positions[order] = np.arange(len(units)) - first
    return positions


@final
class VectorSum(BoundedSum):
    """Noisy number of records and noisy sum of vectors, per group.

    Formal guarantee: a record adds (count_weight, x) to the block of its own group, with ‖x‖ ≤ radius.
    Zero-out: Δ² = radius² + count_weight². Replace-one: the two blocks are orthogonal if the groups differ
    (2Δ²), else x − x' has length at most 2·radius and the counts cancel: Δ² ≤ 4·radius² + 2·count_weight².
    A unit of m records moves the sum by at most m such steps: Δ² grows by m² (triangle inequality).
    """

    ledger_label: ClassVar[str] = "moments.means"
    name: Literal["vector_sum"] = "vector_sum"
    count_weight: int = Field(default=0, ge=0, description="Grid steps that one record counts; 0 = no count.")
    slack: int = Field(
        default=0,
        ge=0,
        exclude_if=operator.not_,
        description="In 1e-18 of δ, charged beside the units: what another branch of the plan would have cost.",
    )

    def slack_beside(self) -> int:
        return self.slack

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        if relation == NeighboringRelation.REPLACE_ONE:
            return self.records_per_unit**2 * Fraction(4 * self.radius**2 + 2 * self.count_weight**2)
        return self.records_per_unit**2 * Fraction(self.radius**2 + self.count_weight**2)

    def exact_sum(self, contributions: GroupedVectors) -> Integers:
        """Return the weighted count of each group, then its vector sum, as int64 (num_groups, 1 + dimensions)."""
        exact = ExactSum((self.num_groups, 1 + self.dimensions), max(self.radius, self.count_weight))
        for group, part in enumerate(self._parts(contributions)):
            exact.add(np.insert(part, 0, self.count_weight, axis=1), group)
        return exact.total

    def decode(self, noisy: Integers) -> Floats:
        """Return noisy counts (0 if none are taken) and noisy sums in units of length, (num_groups, 1 + dimensions)."""
        counts = noisy[:, :1] / max(1, self.count_weight)
        return np.concatenate([counts, noisy[:, 1:] / self.grid], axis=1)


@final
class OuterProductSum(BoundedSum):
    """Noisy Σ x·xᵀ per group, upper triangle, its entries times the two `weights` (a, b).

    Formal guarantee: the weighted triangle of x·xᵀ has squared length b²/2·‖x‖⁴ + (a² − b²/2)·Σ xᵢ⁴, which is at most
    c = max(a², b²/2) times radius⁴. Zero-out: Δ² = c·radius⁴. Replace-one: 2c·radius⁴ (docs/mechanisms/moments.md). A
    unit of m records moves the sum by at most m such steps.
    """

    name: Literal["outer_product_sum"] = "outer_product_sum"
    weights: tuple[Annotated[int, Field(ge=1, le=16)], Annotated[int, Field(ge=1, le=16)]] = Field(
        default=(1, 1),
        exclude_if=lambda weights: weights == (1, 1),
        description="Of entries on the diagonal and beside it. With (5, 7) those beside it, of which a matrix has two, "
        "get 5/7 of the noise at the same price.",
    )

    def label(self) -> str:
        return "moments.subspace" if self.num_groups == 1 else "moments.covariances"

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        records = 2 if relation == NeighboringRelation.REPLACE_ONE else 1
        on, beside = self.weights
        return max(Fraction(on**2), Fraction(beside**2, 2)) * records * self.records_per_unit**2 * self.radius**4

    def exact_sum(self, contributions: GroupedVectors) -> Integers:
        """Return the weighted upper triangle of each group, as int64 (num_groups, d(d+1)/2)."""
        upper = np.triu_indices(self.dimensions)
        weights = self._compute_weights(upper)
        exact = ExactSum((self.num_groups, self.dimensions, self.dimensions), self.radius**2)
        for group, part in enumerate(self._parts(contributions)):
            exact.add_products(part, part, group)
        # The weights are applied to the sum, which has to leave room for them.
        check_range(len(contributions.units), self.radius**2 * max(self.weights))
        return exact.total[:, *upper] * weights

    def decode(self, noisy: Integers) -> Floats:
        """Return symmetric matrices in squared units of length, (num_groups, d, d)."""
        upper = np.triu_indices(self.dimensions)
        entries = noisy / self._compute_weights(upper) / self.grid**2
        result = np.zeros((self.num_groups, self.dimensions, self.dimensions))
        result[:, upper[0], upper[1]] = entries
        result[:, upper[1], upper[0]] = entries
        return result

    def _compute_weights(self, upper: tuple[Integers, Integers]) -> Integers:
        """Return the weight of each entry of the triangle, (d(d+1)/2,)."""
        on, beside = self.weights
        return np.where(upper[0] == upper[1], on, beside)
