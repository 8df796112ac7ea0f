"""Gradient sums: clipped gradients of a whole network, one for each privacy unit, on an integer grid.

This is the release of differentially private gradient descent (Abadi et al. 2016, "Deep Learning with Differential
Privacy", Algorithm 1), on all records or on Poisson-sampled batches. Rows are rounded to an integer grid; the rounding
is inside the sensitivity, so the sum is an exact integer and the noise an exact discrete Gaussian. Claim, proof and
tests: docs/mechanisms/gradient_sum.md.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from fractions import Fraction
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.mechanisms.base import Example, Mechanism
from datalens_service.mechanisms.confined import refused
from datalens_service.mechanisms.exact_sum import ExactSum
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch


class GradientChunk(NamedTuple):
    """Private contributions: a gradient of each record, from which the mechanism takes the mean of each unit."""

    gradients: torch.Tensor
    """(records, dimensions), any float dtype. A unit whose mean is not finite, or longer than 10^19, becomes 0."""
    units: torch.Tensor
    """(records,) int64 identity of each record's unit, ascending; greater than all units of the chunks before."""


def check_chunk(chunk: GradientChunk, dimensions: int, last_unit: int | None) -> int | None:
    """Check a chunk and return its last unit; all records of a unit lie side by side, in one chunk.

    Args:
        chunk: Private.
        dimensions: Width of a gradient.
        last_unit: The last unit of the chunk before.

    Raises:
        ContributionFailed: The chunk has another width, or splits or repeats a unit.
    """
    if chunk.gradients.shape != (len(chunk.units), dimensions):
        raise refused("A chunk of gradients has another shape than the mechanism.")
    if not len(chunk.units):
        return last_unit
    ascending = bool((chunk.units[1:] >= chunk.units[:-1]).all())
    first = int(chunk.units[0])
    if not ascending or (last_unit is not None and first <= last_unit):
        raise refused("The records of a unit must stand side by side in one chunk of gradients.")
    return int(chunk.units[-1])


def unit_means(chunk: GradientChunk) -> torch.Tensor:
    """Return the mean (units, dimensions) over the records of each unit.

    The n-th records of all units are added together, for one n after the other, so that a mean is a function of its own
    unit to the last bit.
    """
    import torch

    identities, inverse, sizes = torch.unique_consecutive(chunk.units, return_inverse=True, return_counts=True)
    if len(identities) == len(chunk.units):
        return chunk.gradients
    starts = sizes.cumsum(0) - sizes
    ranks = torch.arange(len(chunk.units), device=chunk.units.device) - starts[inverse]
    # The mean of one record has the sign of its zeros, too.
    sums = chunk.gradients.new_full((len(identities), chunk.gradients.shape[1]), -0.0, dtype=torch.float64)
    for rank in range(int(sizes.max())):
        records = torch.nonzero(ranks == rank).squeeze(1)
        sums[inverse[records]] += chunk.gradients[records]
    means: torch.Tensor = sums / sizes[:, None]
    return means


# The radius stays below 2^17, so float32 adds up so many rows without rounding, in any order.
_ROWS_PER_BLOCK: Final = 2**7
_COORDINATES_PER_BLOCK: Final = 2**21
"""A block that is clipped together takes 8 MiB beside the chunk, which a processor's cache holds."""

_COORDINATES_PER_SQUARE: Final = 2**7
_ROUNDING_OF_SQUARES: Final = 2**-16
"""Relative error of a squared norm of this many coordinates in float32, at most 131 roundings of 2^-24."""


@final
class GradientSum(Mechanism[Iterable[GradientChunk], NDArray[np.float64]]):
    """Noisy sum of clipped gradients.

    Formal guarantee: a unit contributes h(u), the mean of its records' gradients, clipped to `clip_norm` and rounded
    to the grid; ‖h(u)‖ ≤ radius however many records it has. Zero-out: Δ² = radius². Replace-one: h(u) becomes h(u'),
    at most twice as far away: Δ² = 4·radius², attained by h(u') = −h(u).

    With `sampling` a sum is over the units whose coins are true, and the whole block is charged
    (docs/mechanisms/poisson_sampling.md). `sampling` draws coins inside `release`, after the charge.
    """

    name: Literal["gradient_sum"] = "gradient_sum"
    dimensions: int = Field(ge=1, le=2**30, description="Weights of the network.")
    clip_norm: float = Field(gt=0, allow_inf_nan=False, description="Largest L2 norm of a unit's gradient.")
    grid: int = Field(default=2**16, ge=1, le=2**16, description="Grid steps per clip_norm.")
    sampling: PoissonSampling | None = Field(
        default=None, exclude_if=operator.not_, description="Left out: every sum is over all units."
    )

    @property
    def radius(self) -> int:
        """Return an integer bound of a gradient's L2 norm on the grid: rounding moves it by at most √d/2."""
        return self.grid + math.isqrt(self.dimensions) // 2 + 1

    def label(self) -> str:
        return "network.gradient" if self.sampling is None else "network.sampled_gradient"

    def block(self) -> PoissonSampling | None:
        return self.sampling

    @classmethod
    def example_contributions(cls) -> Example:
        import torch

        rows = torch.tensor([[7.0, 0.0, 0.0], [torch.nan, 0.0, 0.0], [0.0, torch.inf, 0.0]])
        one, none, chunk = (GradientChunk(rows[:count], torch.arange(count)) for count in (1, 0, 3))
        mechanism = cls(dimensions=3, clip_norm=0.5, noise_stddev=400_000)
        return Example(mechanism, [one], [none], [chunk], Fraction(99, 100))

    def sensitivity_squared(self, relation: NeighboringRelation) -> Fraction:
        factor = 4 if relation == NeighboringRelation.REPLACE_ONE else 1
        return Fraction(factor * self.radius**2)

    def covers_whole_units(self, records_per_unit: int, classes_per_unit: int) -> bool:
        return True

    def exact_sum(self, contributions: Iterable[GradientChunk]) -> Integers:
        """Sum the clipped means, as int64 (dimensions,).

        Raises:
            ContributionFailed: Chunks have another width, or split or repeat a unit.
        """
        import torch

        exact = ExactSum((self.dimensions,), self.radius)
        last_unit: int | None = None
        for chunk in contributions:
            # A unit that came in two chunks would contribute two clipped means at the price of one.
            last_unit = check_chunk(chunk, self.dimensions, last_unit)
            means = unit_means(chunk)
            for block in torch.split(means, self._rows_per_block(means.device)):
                exact.add(self.on_grid(block))
        return exact.total

    def decode(self, noisy: Integers) -> NDArray[np.float64]:
        """Return the sum of clipped gradients (dimensions,), in the units of the gradient."""
        return np.asarray(noisy * (self.clip_norm / self.grid))

    def on_grid(self, gradients: torch.Tensor) -> torch.Tensor:
        """Clip rows to `clip_norm`, and round them to whole float32 numbers of norm at most `radius`."""
        import torch

        rows = gradients.to(torch.float32).contiguous()
        norms = row_norms(rows)
        # A row whose norm is not finite becomes NaN here, and 0 by the check of the bound below.
        scale = torch.where(torch.isfinite(norms), self.grid / norms.clamp(min=self.clip_norm), torch.nan)
        rows = torch.mul(rows, scale[:, None]).round_()
        # The proof of the bound does not trust floating point: rows that break it in exact integers vanish.
        inside = within_radius(rows, self.radius)
        # Hardly ever: an assignment that changes nothing takes a third of the time of all this.
        if not bool(inside.all()):
            rows[~inside] = 0.0
        return rows

    def _rows_per_block(self, device: torch.device) -> int:
        fits = _ROWS_PER_BLOCK if device.type == "cuda" else _COORDINATES_PER_BLOCK // self.dimensions
        return min(_ROWS_PER_BLOCK, max(1, fits))


def row_norms(rows: torch.Tensor) -> torch.Tensor:
    """Return the L2 norm of each row (rows,), a function of that row to the last bit; rows must be contiguous."""
    import torch

    # vecdot splits a single row over threads and adds up in another order then.
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1)
    return norms


def within_radius(rows: torch.Tensor, radius: int) -> torch.Tensor:
    """Return whether each row's exact L2 norm is at most `radius` (rows,); an infinite norm or NaN is not.

    Args:
        rows: (rows, dimensions) whole numbers, float32.
        radius: Below 2^17.
    """
    import torch

    inside: torch.Tensor = _squares_at_most(rows) <= radius**2
    if not bool(inside.all()):
        # Squares of whole numbers add up exactly in float64, in any order, up to sums far above the bound.
        exact = rows.to(torch.float64)
        inside = torch.linalg.vecdot(exact, exact) <= radius**2
    return inside


def _squares_at_most(rows: torch.Tensor) -> torch.Tensor:
    """Return upper bounds (rows,), float64, of the squared norms of whole numbers in float32."""
    import torch

    count = rows.shape[1] // _COORDINATES_PER_SQUARE
    end = count * _COORDINATES_PER_SQUARE
    blocks, rest = rows[:, :end].view(len(rows), count, _COORDINATES_PER_SQUARE), rows[:, None, end:]
    norms = torch.cat([torch.linalg.vector_norm(part, dim=2) for part in (blocks, rest)], dim=1)
    return norms.to(torch.float64).square().sum(dim=1) * (1 + _ROUNDING_OF_SQUARES)
