"""A second opinion: ε of Gaussian releases by Google's dp_accounting, without a line of `accounting.py`.

The product charges by a closed form. Here the privacy loss distribution of every release is discretised and the
distributions are convolved (Doroshenko et al. 2022), pessimistically: the result is never below the true ε, and
for ε ≤ 100 it lies above it by less than `RESOLUTION`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from scipy.special import log_ndtr, ndtr

from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.base.parsing import decimal_text

RESOLUTION: Final = 1e-5
"""Bound of the distance of a recomputed ε above the true one."""

LARGEST_EPSILON: Final = 100.0
"""Beyond it the discretisation is neither fast nor exact, and an ε promises nothing."""

_KNOTS: Final = 57
"""Curves are compared at eighths of μ from 0; beyond seven μ that of a Gaussian is below any slack."""

_SMALLEST_DELTA: Final = 1e-12
# N_Z(v, σ²) is a post-processing of the continuous N(v, σ² − 9): docs/mechanisms/discrete_gaussian.md.
_SMOOTHING_VARIANCE: Final = 9


@dataclass(frozen=True)
class GaussianReleases:
    """Equal Gaussian releases; `squared_multiplier` is (σ/Δ)² of the continuous noise, exact."""

    squared_multiplier: Fraction
    count: int

    @property
    def mu_squared(self) -> Fraction:
        """Return the exact cost of all of them."""
        return self.count / self.squared_multiplier


def discrete_releases(sensitivity_squared: Fraction, noise_stddev: int, count: int) -> GaussianReleases:
    """Treat releases with discrete Gaussian noise as the continuous ones that they are a post-processing of.

    Args:
        sensitivity_squared: Squared L2 sensitivity Δ² of one query.
        noise_stddev: σ of the discrete Gaussian, at least 100.
        count: Queries that one privacy unit influences.
    """
    return GaussianReleases((noise_stddev**2 - _SMOOTHING_VARIANCE) / sensitivity_squared, count)


@dataclass(frozen=True)
class SampledReleases:
    """Equal Gaussian releases on Poisson-sampled batches."""

    squared_multiplier: Fraction
    probability: Fraction
    draws: int

    def excess_over(self, mu_squared: Fraction, slack: Fraction) -> float:
        """Bound how far the curve of the draws rises above the stated cost; not above 0 if the draws are paid in full.

        Args:
            mu_squared: The stated μ² of a Gaussian that covers the draws.
            slack: The stated part of δ beside it.
        """
        dp_accounting, accountant = pld_accountant("REPLACE_SPECIAL")
        noise = dp_accounting.GaussianDpEvent(math.sqrt(self.squared_multiplier))
        accountant.compose(dp_accounting.PoissonSampledDpEvent(float(self.probability), noise), self.draws)
        mu = math.sqrt(mu_squared)
        # The curve of draws is known up to the resolution.
        knots = (mu * knot / 8 for knot in range(_KNOTS))
        curve = ((accountant.get_delta(epsilon), gaussian_delta(mu, epsilon - RESOLUTION)) for epsilon in knots)
        return float(max(drawn - covered for drawn, covered in curve)) - float(slack)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return δ(ε) of μ-GDP (Balle & Wang 2018, Theorem 8)."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def composed_epsilon(releases: Iterable[GaussianReleases], delta: float) -> float:
    """Return ε at δ of all releases together, rounded up by less than `RESOLUTION`.

    Args:
        releases: In any order: the bound holds however one depends on the other.
        delta: At least 1e-12.

    Returns:
        ε, or infinity where it is certainly above `LARGEST_EPSILON`.

    Raises:
        InvalidInput: δ is too small for the discretisation.
    """
    given = tuple(releases)
    if delta < _SMALLEST_DELTA:
        raise InvalidInput(f"ε can be recomputed for a δ of at least {decimal_text(_SMALLEST_DELTA)} only.")
    # The privacy loss has mean μ²/2 and deviation μ: from here on, δ at the largest ε is 1 but for 3e-7.
    if sum(each.mu_squared for each in given) > 4 * LARGEST_EPSILON:
        return math.inf
    dp_accounting, accountant = pld_accountant()
    events = [
        dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(math.sqrt(each.squared_multiplier)), each.count)
        for each in given
    ]
    return float(accountant.compose(dp_accounting.ComposedDpEvent(events)).get_epsilon(delta))


def pld_accountant(relation: str = "ADD_OR_REMOVE_ONE") -> tuple[Any, Any]:
    """Return the module dp_accounting, and its accountant for privacy loss distributions."""
    try:
        import dp_accounting
        from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    except ImportError as error:
        raise WorkerUnavailable(
            "dp_accounting is not installed; install it with: pip install 'datalens-service[worker]'."
        ) from error
    return dp_accounting, PLDAccountant(dp_accounting.NeighboringRelation[relation])
