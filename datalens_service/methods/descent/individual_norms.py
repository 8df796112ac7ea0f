"""Norms of what each unit adds to the gradients of a descent, computed again at its released iterates.

Private: norms belong to the owners of the units alone. A norm is a function of its unit and of the iterates, so it
comes out the same whoever else is in the data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from datalens_service.mechanisms import GradientChunk, GradientSum, IndividualHistogram
from datalens_service.mechanisms.gradient_sum import unit_means
from datalens_service.privacy.individual import (
    FullBatchAccountant,
    IndividualAccountant,
    SampledAccountant,
    level_table,
    norm_levels,
)
from datalens_service.privacy.randomness import Integers

if TYPE_CHECKING:
    import torch

Iterate = Mapping[str, NDArray[np.float32]]

_UNITS_AT_ONCE: Final = 2**14


class Descent(Protocol):
    """A run of the job's method and plan on the records in question."""

    @property
    def mechanism(self) -> GradientSum:
        """Of every step."""

    def set_weights(self, iterate: Iterate) -> None:
        """Compute what follows at these weights."""

    def contributions(self) -> Iterator[GradientChunk]:
        """Private: gradients of all units at the weights as they are."""


def squared_norms(descent: Descent, iterates: Iterable[Iterate]) -> Integers:
    """Private: int64 (steps, units), squared norms on the grid of the mechanism, units ascending.

    A gradient that is not finite counts as one of the largest norm.

    Args:
        descent: Its weights are replaced.
        iterates: Weights by name before each step, as they were released.
    """
    return np.stack([_at(descent, iterate) for iterate in iterates])


def epsilons_of_units(
    descent: Descent, iterates: Iterable[Iterate], count: int, histogram: IndividualHistogram
) -> NDArray[np.float64]:
    """Private: (units,) realised ε of every unit, ascending; each is a function of its own unit.

    Args:
        descent: Its weights are replaced.
        iterates: Every `IndividualHistogram.every`-th that was released, the first one included.
        count: Of all iterates.
    """
    levels = norm_levels(squared_norms(descent, iterates), descent.mechanism.radius)
    steps = np.diff([*range(0, count, histogram.every), count])
    accountant = build_accountant(descent.mechanism, histogram.largest_epsilon, histogram.cost())
    blocks = np.array_split(levels, max(1, levels.shape[1] // _UNITS_AT_ONCE), axis=1)
    return np.concatenate([accountant.epsilons(level_table(block, steps), histogram.delta) for block in blocks])


def build_accountant(mechanism: GradientSum, worst_epsilon: float, other_units: int) -> IndividualAccountant:
    """The accountant of a descent.

    Args:
        worst_epsilon: ε of the job.
        other_units: Of its other releases, which cost every unit the same.
    """
    if mechanism.sampling is None:
        return FullBatchAccountant(mechanism.radius, mechanism.noise_stddev, other_units=other_units)
    multiplier = mechanism.noise_multiplier()
    return SampledAccountant(mechanism.sampling.probability, multiplier, worst_epsilon, other_units=other_units)


def _at(descent: Descent, iterate: Iterate) -> Integers:
    import torch

    descent.set_weights(iterate)
    norms = [_square_norms(descent.mechanism, unit_means(chunk)) for chunk in descent.contributions()]
    return torch.cat(norms).numpy()


def _square_norms(mechanism: GradientSum, means: torch.Tensor) -> torch.Tensor:
    import torch

    rows = mechanism.on_grid(means).to(torch.float64)
    # Whole numbers whose squares add up to less than 2^34: exact in float64.
    norms = torch.linalg.vecdot(rows, rows)
    # What overflows here and adds nothing may have been finite, and as long as any, where other kernels computed it.
    finite = torch.isfinite(means).all(dim=1)
    return torch.where(finite, norms, float(mechanism.radius**2)).to("cpu", torch.int64)
