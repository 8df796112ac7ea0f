"""Norms of each unit's contributions to the gradients of a descent, computed again at its released iterates.

Private: norms belong to the owners of the units alone. A norm is a function of its unit and of the iterates, so it
comes out the same whoever else is in the data set.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import torch

from datalens_service.mechanisms import GradientSum, IndividualHistogram
from datalens_service.mechanisms.individual_histogram import IndividualEpsilons
from datalens_service.mechanisms.unit_records import UnitRows
from datalens_service.methods.descent.iterates import Iterates
from datalens_service.methods.descent.unit_gradients import unit_gradients
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.individual import (
    FullBatchAccountant,
    IndividualAccountant,
    SampledAccountant,
    level_table,
    norm_levels,
)
from datalens_service.privacy.randomness import Integers

_UNITS_AT_ONCE: Final = 1024


class Looking(NamedTuple):
    """Everything beside a unit's records that its realised ε follows from."""

    gradients: PerRecordGradients
    """Gradients of the network, whose weights are replaced."""
    mechanism: GradientSum
    """The mechanism of every step."""
    histogram: IndividualHistogram
    iterates: Iterates
    """(steps, weights) before each step, as they were released."""


def individual_epsilons(rows: UnitRows, looking: Looking) -> IndividualEpsilons:
    """Contribution: the realised ε of every unit, by its gradients at every `IndividualHistogram.every`-th iterate."""
    mechanism, histogram, count = looking.mechanism, looking.histogram, len(looking.iterates)
    norms = squared_norms(rows, looking.gradients, mechanism, looking.iterates[:: histogram.every])
    levels = norm_levels(norms, mechanism.radius)
    steps = np.diff([*range(0, count, histogram.every), count])
    accountant = build_accountant(mechanism, histogram.largest_epsilon, histogram.cost())
    blocks = np.split(levels, range(_UNITS_AT_ONCE, levels.shape[1], _UNITS_AT_ONCE), axis=1)
    epsilons = [accountant.epsilons(level_table(block, steps), histogram.delta) for block in blocks]
    return IndividualEpsilons(np.concatenate(epsilons), np.arange(levels.shape[1]))


def squared_norms(
    rows: UnitRows, gradients: PerRecordGradients, mechanism: GradientSum, iterates: Iterable[Iterates]
) -> Integers:
    """Return private squared norms on the grid of the mechanism, int64 (steps, units), units ascending.

    A gradient that is not finite counts as one of the largest norm.

    Args:
        rows: Records as `UnitRecords` has them.
        gradients: Gradients of the network; its weights are replaced.
        mechanism: The mechanism of every step.
        iterates: Weights (weights,) before each step, as they were released.
    """
    return np.stack([_at(rows, gradients, mechanism, weights) for weights in iterates])


def build_accountant(mechanism: GradientSum, worst_epsilon: float, other_ledger_units: int) -> IndividualAccountant:
    """Build the accountant of a descent.

    Args:
        worst_epsilon: ε of the job.
        other_ledger_units: Ledger units of its other releases, which cost every unit the same.
    """
    if mechanism.sampling is None:
        return FullBatchAccountant(mechanism.radius, mechanism.noise_stddev, other_ledger_units=other_ledger_units)
    multiplier = mechanism.noise_multiplier()
    return SampledAccountant(
        mechanism.sampling.probability, multiplier, worst_epsilon, other_ledger_units=other_ledger_units
    )


def _at(rows: UnitRows, gradients: PerRecordGradients, mechanism: GradientSum, weights: Iterates) -> Integers:
    gradients.set_weights(weights)
    norms = [_square_norms(mechanism, means) for means in unit_gradients(rows, gradients)]
    return torch.cat(norms).numpy()


def _square_norms(mechanism: GradientSum, means: torch.Tensor) -> torch.Tensor:
    rows = mechanism.on_grid(means).to(torch.float64)
    # Whole numbers whose squares add up to less than 2^34: exact in float64.
    norms = torch.linalg.vecdot(rows, rows)
    # A gradient that overflows here and adds nothing may have been finite, and as long as any, by other kernels.
    finite = torch.isfinite(means).all(dim=1)
    return torch.where(finite, norms, float(mechanism.radius**2)).to("cpu", torch.int64)
