"""Realised individual ε: the cost of the steps of a released descent to one privacy unit.

Given all released iterates, a step is a Gaussian whose mean the unit shifts by its own clipped gradient h. Norms are
rounded up to public levels, so that the price of a level is known before training. A realised sum is an odometer: the
guarantee of every unit is the ε of the job. Claim and proof: docs/mechanisms/individual_histogram.md.

Accounts for single records of DP-SGD, with rounded norms, are from Yu et al. 2022, "Per-Instance Privacy Accounting for
Differentially Private Stochastic Gradient Descent"; that page says where we differ from their Algorithm 1.
"""

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Protocol

import numpy as np

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InvalidSpec
from datalens_service.privacy.accounting import LEDGER_UNITS_PER_MU_SQUARED, cost_ledger_units, epsilon_of_ledger_units
from datalens_service.privacy.randomness import Integers

DEFAULT_LEVELS: Final = 100

# Orders of Rényi divergence; more of them can only lower the result.
# Whole ones are fast.
_ORDERS: Final = [
    1.25,
    1.5,
    1.75,
    *(float(order) for order in (*range(2, 64), *range(64, 128, 8), *range(128, 257, 32))),
]
_PARTS: Final = 1000
_RELATIVE_MARGIN: Final = 2**10
_GRID_MARGIN: Final = 4


class IndividualAccountant(Protocol):
    """Converts the number of steps of a unit at each level of its gradient's norm to ε."""

    def epsilon(self, counts: Mapping[int, int], delta: float) -> float:
        """Return the realised ε of a unit from `counts`: steps at each level, from 0 to the number of levels."""

    def epsilons(self, counts: Integers, delta: float) -> Floats:
        """Return the realised ε of units (units,), at most a little larger.

        Args:
            counts: (units, levels + 1) steps at each level, equally many in all for each unit.
        """


class FullBatchAccountant:
    """Steps on all records: Gaussians of known shift, whose μ² add up; the tight curve converts them.

    Args:
        radius: Integer bound of a contribution's norm, public.
        noise_stddev: σ of the discrete Gaussian.
        levels: Norms are rounded up to multiples of radius / levels.
        other_ledger_units: Ledger units of releases of the job that cost every unit the same.
    """

    def __init__(
        self, radius: int, noise_stddev: int, levels: int = DEFAULT_LEVELS, other_ledger_units: int = 0
    ) -> None:
        squares = (Fraction(level * radius, levels) ** 2 for level in range(levels + 1))
        self._units = [cost_ledger_units(square, noise_stddev) for square in squares]
        self._other_ledger_units = other_ledger_units

    def ledger_units(self, counts: Mapping[int, int]) -> int:
        """Return the realised μ² in 1e-15, rounded up at every step."""
        return self._other_ledger_units + sum(count * self._units[level] for level, count in counts.items())

    def epsilon(self, counts: Mapping[int, int], delta: float) -> float:
        return epsilon_of_ledger_units(self.ledger_units(counts), delta)

    def epsilons(self, counts: Integers, delta: float) -> Floats:
        """Return realised ε, rounded up to the next of a thousand values evenly spaced in μ²."""
        ledger_units = self._other_ledger_units + counts @ np.array(self._units, dtype=np.int64)
        largest = self.ledger_units({len(self._units) - 1: int(counts.sum(axis=1).max(initial=0))})
        values = [-(-largest * part // _PARTS) for part in range(_PARTS + 1)]
        epsilons = np.array([epsilon_of_ledger_units(value, delta) for value in values])
        return epsilons[np.searchsorted(np.array(values, dtype=np.int64), ledger_units)]


class SampledAccountant:
    """Steps on Poisson-sampled batches: Rényi divergences, which add up along released iterates.

    Args:
        probability: q, public.
        noise_multiplier: σ / radius of the continuous noise, rounded down.
        worst_epsilon: ε of the job; no unit is shown more.
        other_ledger_units: Ledger units of Gaussian releases of the job that cost every unit the same.
    """

    def __init__(
        self,
        probability: float,
        noise_multiplier: float,
        worst_epsilon: float,
        levels: int = DEFAULT_LEVELS,
        other_ledger_units: int = 0,
    ) -> None:
        self._probability, self._noise_multiplier = probability, noise_multiplier
        self._worst_epsilon, self._levels = worst_epsilon, levels
        self._other_ledger_units = other_ledger_units

    def epsilon(self, counts: Mapping[int, int], delta: float) -> float:
        """Return realised ε, rounded as dp_accounting does, and at most the ε of the job."""
        row = np.zeros((1, self._levels + 1), dtype=np.int64)
        for level, count in counts.items():
            row[0, level] = count
        return float(self.epsilons(row, delta)[0])

    def epsilons(self, counts: Integers, delta: float) -> Floats:
        """Return realised ε of units (units,).

        All levels are added, one after the other: which of them occur, and how a library would order a product, depends
        on the other units.
        """
        divergences = np.tile(self._other_divergences(), (len(counts), 1))
        by_level = _divergences_by_level(self._probability, self._noise_multiplier, self._levels)
        for level, of_one_step in enumerate(by_level):
            times = counts[:, level, None]
            # A divergence that a library could not compute is infinite, also where no step has it.
            divergences += np.multiply(times, of_one_step, out=np.zeros_like(divergences), where=times > 0)
        return np.array([self._converted(row, delta) for row in divergences], dtype=np.float64)

    def _other_divergences(self) -> Floats:
        """Return the Rényi divergences (orders,) of a Gaussian with this μ²: α·μ²/2."""
        return np.array(_ORDERS) * (self._other_ledger_units / LEDGER_UNITS_PER_MU_SQUARED / 2)

    def _converted(self, divergences: Floats, delta: float) -> float:
        from dp_accounting.rdp import compute_epsilon

        # Another conversion than that of the job may come out above it; the guarantee of the job holds in any case.
        return min(self._worst_epsilon, float(compute_epsilon(_ORDERS, divergences.tolist(), delta)[0]))


@functools.lru_cache(maxsize=8)
def _divergences_by_level(probability: float, noise_multiplier: float, levels: int) -> Floats:
    """Return the Rényi divergences (levels + 1, orders) of one sampled step at each level; takes some seconds."""
    multipliers = [noise_multiplier * levels / level for level in range(1, levels + 1)]
    rows = [_sampled_divergences(probability, multiplier) for multiplier in multipliers]
    return np.stack([np.zeros(len(_ORDERS)), *rows])


def _sampled_divergences(probability: float, noise_multiplier: float) -> Floats:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant(_ORDERS, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    noise = dp_accounting.GaussianDpEvent(noise_multiplier)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(probability, noise))
    return np.asarray(accountant.rdp, dtype=np.float64)


def norm_levels(squared_norms: Integers, radius: int, levels: int = DEFAULT_LEVELS) -> Integers:
    """Return the levels of contributions, rounded up: the smallest k with ‖h‖ ≤ k · radius / levels, in whole numbers.

    Args:
        squared_norms: int64, any shape: squared norms on the grid, at most radius².

    Raises:
        InvalidSpec: A norm is larger than `radius`, or there is no level.
    """
    if levels < 1 or np.any(squared_norms < 0) or np.any(squared_norms > radius**2):
        raise InvalidSpec("Norms lie between 0 and the radius, and there is at least one level.")
    # Largest squared norm of each level, rounded down: a whole number is at most k²·radius²/levels² or at most this.
    bounds = np.array([level**2 * radius**2 // levels**2 for level in range(levels + 1)], dtype=np.int64)
    return np.searchsorted(bounds, squared_norms, side="left").astype(np.int64)


def with_margin(squared_norms: Integers, radius: int) -> Integers:
    """Raise squared norms to cover those of the same gradients when they are computed in chunks of another size.

    Floats then differ in their last bits, and with them the rounding to the grid: a norm is raised by a thousandth
    and by four grid steps, to the radius at most. That is enough for norms that move with the last bits of a gradient,
    and for nothing that a last bit switches on and off: compressed gradients have no individual ε.
    """
    norms = np.ceil(np.sqrt(squared_norms.astype(np.float64)))
    raised = np.minimum(np.ceil(norms * (1 + 1 / _RELATIVE_MARGIN)) + _GRID_MARGIN, radius)
    return np.asarray(raised, dtype=np.int64) ** 2


def level_counts(levels: Integers) -> dict[int, int]:
    """Count how often each level occurs among the steps (steps,) of one unit."""
    values, counts = np.unique(levels, return_counts=True)
    return {int(value): int(count) for value, count in zip(values, counts, strict=True)}


def level_table(levels: Integers, steps: Integers, largest: int = DEFAULT_LEVELS) -> Integers:
    """Count the steps of each unit at each level, (units, largest + 1).

    Args:
        levels: (iterates, units).
        steps: (iterates,) the number of steps that each iterate stands for.
    """
    table = np.zeros((levels.shape[1], largest + 1), dtype=np.int64)
    units = np.arange(levels.shape[1])
    for row, count in zip(levels, steps.tolist(), strict=True):
        table[units, row] += count
    return table


def realised_epsilons(levels: Integers, accountant: IndividualAccountant, delta: float) -> Floats:
    """Return the realised ε of units (units,), each a function of its own column."""
    return np.array([accountant.epsilon(level_counts(column), delta) for column in levels.T], dtype=np.float64)
