"""Cross products: a noisy sum of x·yᵀ over records, the shape of the gradient of a linear layer.

Both factors are rounded to integer grids; the rounding is inside the sensitivity, so the sum is an exact integer
and the noise an exact discrete Gaussian. Claim, proof and tests: docs/mechanisms/cross_product.md.
"""

import math
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.exact_sum import ExactSum
from datalens_service.mechanisms.moments import position_in_unit
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.randomness import Integers

Floats = NDArray[np.float32] | NDArray[np.float64]

# Below it sums of products stay exact in float64 for 2^29 records, and squared lengths in float32.
_LARGEST_RADIUS = 2**12
# Few enough that a block stays in the processor's cache.
_ROWS = 512


class OuterProductFactors(NamedTuple):
    """Private contributions: two vectors per record."""

    left: Floats
    """(records, left_dimensions); rows longer than 1 are scaled back to length 1, rows not finite become 0."""
    right: Floats
    """(records, right_dimensions); treated in the same way."""
    units: Integers
    """(records,) identity of each record's unit; at most `records_per_unit` records of one unit count."""


@final
class CrossProductSum(Mechanism[OuterProductFactors, NDArray[np.float64]]):
    """Noisy Σ x·yᵀ.

    Formal guarantee: ‖x·yᵀ‖_F = ‖x‖·‖y‖ ≤ P, the product of the two radii.
    Zero-out: Δ² = P². Replace-one: ‖xyᵀ − x'y'ᵀ‖_F ≤ 2P, attained by y' = −y: Δ² = 4P².
    A unit of m records moves the sum by at most m such steps: Δ² grows by m² (triangle inequality).
    """

    ledger_label: ClassVar[str] = "classifier.gradient"
    name: Literal["cross_product_sum"] = "cross_product_sum"
    left_dimensions: int = Field(ge=1)
    right_dimensions: int = Field(ge=1)
    records_per_unit: int = Field(default=1, ge=1, description="Largest number of records of one unit.")
    grid: int = Field(default=2048, ge=1, le=_LARGEST_RADIUS // 2, description="Grid steps per unit length.")

    @classmethod
    def example_contributions(cls) -> Example:
        left = np.array([[7.0, 0.0], [np.nan, 0.0], [0.0, np.inf]])
        right, units = np.full((3, 3), 7.0), np.arange(3)
        one, none, factors = (OuterProductFactors(left[:n], right[:n], units[:n]) for n in (1, 0, 3))
        mechanism = cls(left_dimensions=2, right_dimensions=3, noise_stddev=10_000_000)
        return Example(mechanism, one, none, factors, Fraction(99, 100))

    def radius(self, dimensions: int) -> int:
        """Return an integer bound of a vector's L2 norm on the grid: rounding moves it by at most √d/2."""
        return self.grid + math.isqrt(dimensions) // 2 + 1

    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        """A record enters one block of the sum, so the number of classes does not matter."""
        return self.records_per_unit == records_per_unit

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        product = self.radius(self.left_dimensions) * self.radius(self.right_dimensions)
        factor = 4 if relation == NeighboringRelation.REPLACE_ONE else 1
        return Fraction(factor * self.records_per_unit**2 * product**2)

    def exact_sum(self, contributions: OuterProductFactors) -> Integers:
        """Sum the products, as int64 (left_dimensions, right_dimensions)."""
        counted = np.flatnonzero(position_in_unit(contributions.units) < self.records_per_unit)
        sizes = self.left_dimensions, self.right_dimensions
        exact = ExactSum(sizes, math.prod(map(self.radius, sizes)))
        for start in range(0, len(counted), _ROWS):
            rows = counted[start : start + _ROWS]
            exact.add_products(self.on_grid(contributions.left[rows]), self.on_grid(contributions.right[rows]))
        return exact.total

    def decode(self, noisy: Integers) -> NDArray[np.float64]:
        """Return the sum in units of length, (left_dimensions, right_dimensions)."""
        return np.asarray(noisy / self.grid**2)

    def on_grid(self, values: Floats) -> NDArray[np.float32]:
        """Round rows to whole numbers (held in float32) with L2 norm at most `radius`."""
        values = np.asarray(values, dtype=np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            norms = np.sqrt(np.einsum("ij,ij->i", values, values))
            rounded = values * (np.float32(self.grid) / np.maximum(norms, 1))[:, None]
        np.rint(rounded, out=rounded)
        rounded[~np.isfinite(norms)] = 0
        # The proof of the bound does not trust floating point: rows that break it in exact integers vanish. Sums of
        # squares are exact up to 2^24, and stay beyond it once they are.
        squared = np.einsum("ij,ij->i", rounded, rounded)
        rounded[~(squared <= self.radius(values.shape[1]) ** 2)] = 0
        return np.asarray(rounded)
