"""The cost of a run of Poisson-sampled releases in an account that counts μ²: dominance by a Gaussian up to a slack.

A sampled Gaussian is not μ-GDP for any useful μ: the tail of its privacy loss is that of the noise without sampling.
But all of its curve except a small mass lies below a Gaussian's. A run is charged the smallest such μ² and that mass,
its slack δ₀; both add up over an account, and ε is read off at δ − Σ δ₀. Claim and proof:
docs/mechanisms/poisson_sampling.md. Curves come from dp_accounting, whose discretisation never lies below the truth.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from scipy.special import log_ndtr

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InfeasiblePlan, InvalidSpec, WorkerUnavailable
from datalens_service.privacy.accounting import LEDGER_UNITS_PER_MU_SQUARED, NeighboringRelation
from datalens_service.privacy.sampled import LOSS_INTERVAL, poisson_sampled_losses

# Convolutions by Fourier transform and sums of 10^5 masses are wrong by less than this.
_NUMERICAL_ERROR: Final = 1e-11
# Relative; covers the rounding of log_ndtr and exp (below 1e-12) many times over.
_CURVE_ERROR: Final = 1e-9
_BISECTIONS: Final = 60
_LARGEST_MU: Final = 64.0
# Knots end where the curve is this low, or here.
_NEGLIGIBLE_MASS: Final = 1e-13
_LARGEST_LOSS: Final = 128.0
_COMPARED: Final = 9
# Sums of some 10^5 masses in another order differ by less.
_TOLERANCE: Final = 1e-12


def deltas_at_multiples(distribution: Any, interval: float, count: int) -> Floats:
    """Return δ(ε) at ε = 0, interval, 2·interval, … (count,), the larger of both orders of two neighbours.

    dp_accounting loops over all losses in Python, which takes seconds for a single price. The sums here are the same,
    by numpy, and are compared with it at some losses each time.

    Args:
        distribution: A PrivacyLossDistribution of dp_accounting, with losses at multiples of `interval`.
        interval: Its discretisation.
        count: At least 1.

    Raises:
        WorkerUnavailable: dp_accounting computes something else; this code is made for another version of it.
    """
    epsilons = interval * np.arange(count, dtype=np.float64)
    deltas = np.maximum(*(_deltas(pmf, epsilons) for pmf in (distribution._pmf_remove, distribution._pmf_add)))
    for place in np.unique(np.linspace(0, count - 1, _COMPARED).astype(int)):
        difference = abs(float(distribution.get_delta_for_epsilon(float(epsilons[place]))) - deltas[place])
        if not difference <= _TOLERANCE:
            raise WorkerUnavailable("This version of dp_accounting is not supported: install the one that is pinned.")
    return np.asarray(deltas)


def _deltas(pmf: Any, epsilons: Floats) -> Floats:
    """Return inf + Σ over losses above ε of p·(1 − e^(ε − loss)), both sums taken from the largest loss down."""
    dense = pmf.to_dense_pmf()
    first, masses = dense._lower_loss, dense._probs
    losses = (first + np.arange(len(masses))) * dense._discretization
    above = len(masses) - np.clip(np.arange(len(epsilons)) + 1 - first, 0, len(masses))
    upper = np.concatenate([[dense._infinity_mass], masses[::-1]]).cumsum()
    # Only losses above 0 are asked for; e^(-loss) of the others could overflow.
    lower = np.concatenate([[0.0], (masses * np.exp(-np.maximum(losses, 0.0)))[::-1]]).cumsum()
    return np.asarray(upper[above] - np.exp(epsilons) * lower[above])


@dataclass(frozen=True)
class PrivacyCurve:
    """H(γ) = sup over events S of P(S) − γ·Q(S), the larger of both orders of two neighbours, for γ = e^x ≥ 1.

    Between two knots H is at most the straight line in γ; beyond the last knot it does not rise.

    Attributes:
        knots: x in ascending order, the first one 0.
        deltas: H(e^x) at each, rounded up.
    """

    knots: Floats
    deltas: Floats


def poisson_gaussian_curve(
    noise_multiplier: float, sampling_probability: float, steps: int, relation: NeighboringRelation
) -> PrivacyCurve:
    """Return the curve of `steps` Poisson-sampled Gaussian sums, chosen adaptively.

    Args:
        noise_multiplier: σ/C of the continuous noise, for contributions of L2 norm at most C.

    Raises:
        InvalidSpec: An argument is out of its range.
    """
    losses = poisson_sampled_losses(noise_multiplier, sampling_probability, steps, relation)
    end = 1.0
    while losses.get_delta_for_epsilon(end) > _NEGLIGIBLE_MASS and end < _LARGEST_LOSS:
        end *= 2
    # Losses are multiples of the interval, so H is linear in γ between these knots.
    knots: Floats = LOSS_INTERVAL * np.arange(round(end / LOSS_INTERVAL) + 1, dtype=np.float64)
    return PrivacyCurve(knots, deltas_at_multiples(losses, LOSS_INTERVAL, len(knots)))


def dominating_ledger_units(curve: PrivacyCurve, slack: Fraction) -> int:
    """Return the ledger units (1e-15 of μ²) of a Gaussian that dominates `curve` up to `slack`, rounded up.

    Guarantee: for μ² of that many units, H(e^x) ≤ δ_μ(x) + slack for all real x.

    Args:
        slack: δ₀ above 0: mass that the Gaussian need not cover, charged beside the units.

    Raises:
        InvalidSpec: The slack is not above 0.
        InfeasiblePlan: No Gaussian dominates the curve up to so small a slack.
    """
    if slack <= 0:
        raise InvalidSpec("The slack must be above 0.")
    low, high = 0.0, _LARGEST_MU
    if not dominates(high, curve, slack):
        raise InfeasiblePlan("No Gaussian covers this sampled run up to its slack: use more noise or fewer steps.")
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if dominates(middle, curve, slack) else (middle, high)
    return math.ceil(Fraction(high) ** 2 * LEDGER_UNITS_PER_MU_SQUARED)


def dominates(mu: float, curve: PrivacyCurve, slack: Fraction) -> bool:
    """Decide, on the safe side, whether H(e^x) ≤ δ_μ(x) + slack for all x ≥ 0.

    Args:
        curve: Checked at its knots, with an allowance for δ_μ, which is convex in γ and may dip between them.
        slack: δ₀.
    """
    room = float(slack) * (1 - _CURVE_ERROR) - _NUMERICAL_ERROR - _largest_dip(mu, curve.knots)
    beyond = float(curve.deltas[-1]) <= room
    # Where the curve lies below the slack there is nothing to cover. NaN counts as above.
    high = ~(curve.deltas <= room)
    return beyond and bool((curve.deltas[high] <= gaussian_deltas(mu, curve.knots[high]) + room).all())


def gaussian_deltas(mu: float, losses: Floats) -> Floats:
    """Return δ_μ(x) at every x, rounded down (Balle & Wang 2018, Theorem 8)."""
    first = log_ndtr(mu / 2 - losses / mu)
    second = losses + log_ndtr(-mu / 2 - losses / mu)
    # Where both terms nearly cancel, their difference is all rounding: 0 is on the safe side.
    deltas = np.exp(first) * (-np.expm1(np.minimum(second - first, 0.0)) - _CURVE_ERROR)
    return np.asarray(np.maximum(deltas, 0.0))


def _largest_dip(mu: float, knots: Floats) -> float:
    """Bound the distance of δ_μ below its chords between neighbouring knots, as functions of γ = e^x.

    The proof, step 5: it is at most (e^Δ − 1)²/(8·μ·√(2π)) for knots that are Δ apart.
    """
    widest = float(np.diff(knots).max(initial=0.0))
    return math.expm1(widest) ** 2 / (8 * mu * math.sqrt(2 * math.pi))
