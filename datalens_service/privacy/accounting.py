"""Exact accounting for Gaussian mechanisms.

A sum with L2 sensitivity Δ and Gaussian noise of standard deviation σ on every coordinate is exactly
μ-GDP with μ = Δ/σ. Under fully adaptive, concurrent composition μ² adds up (Dong, Roth & Su 2022,
Theorem 3.2; Smith & Thakurta 2022, Theorem 3.1), and a μ-GDP mechanism is (ε, δ)-DP exactly for

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε · Φ(−μ/2 − ε/μ)          (Balle & Wang 2018, Theorem 8)

The account is kept in integers: one unit is 1e-15 of μ². Costs are rounded up, limits are rounded down,
so no float takes part in any decision whether something may be released.

Noise is discrete: N_Z(v, σ²) is, up to a factor 1 ± 2.8e-77 per coordinate, a post-processing of the
continuous N(v, σ² − 9). Charging Δ²/(σ² − 9) therefore covers it (docs/mechanisms/discrete_gaussian.md).
"""

import math
from decimal import ROUND_FLOOR, Decimal, localcontext
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from scipy.special import log_ndtr

from datalens_service.base.errors import BudgetExceeded, InfeasiblePlan, InvalidDelta, InvalidSpec
from datalens_service.base.parsing import PrivacyParameter

LEDGER_UNITS_PER_MU_SQUARED = 10**15
SLACK_UNITS_PER_DELTA = 10**18
SMOOTHING_VARIANCE = 9
MINIMUM_NOISE_STDDEV = 100
DEFAULT_DELTA_CEILING = 1e-5

EPSILON_DIGITS: Final = 4
"""Digits behind the point of every ε that follows from an account."""
_MU_DIGITS: Final = 6

# Relative slack that covers the rounding of log_ndtr and exp (below 1e-12) many times over.
_SLACK = 1e-10
_BISECTIONS = 200


class NeighboringRelation(StrEnum):
    """The pairs of data sets that the guarantee makes hard to tell apart; n is public in both."""

    ZERO_OUT = "zero_out"
    REPLACE_ONE = "replace_one"


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ for which a μ-GDP mechanism is (ε, δ)-DP, rounded up (Balle & Wang 2018, Theorem 8).

    Args:
        mu: Privacy parameter of the Gaussian trade-off curve, at least 0.
        epsilon: At least 0.
    """
    if mu <= 0:
        return 0.0
    log_first = float(log_ndtr(mu / 2 - epsilon / mu))
    log_second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    # A difference of equals can come out positive by rounding; δ is then too small to represent.
    gap = min(0.0, log_second - log_first)
    # Rounded up: a relative margin for the functions, an absolute one for the cancellation in their difference.
    return min(1.0, math.exp(log_first) * (-math.expm1(gap)) * (1 + _SLACK) + math.exp(log_first) * 1e-14)


def epsilon_for_mu(mu: float, delta: float) -> float:
    """Return the smallest ε for which a μ-GDP mechanism is (ε, δ)-DP, rounded up; 0 when δ alone covers the mechanism.

    Args:
        mu: At least 0.
        delta: In (0, 1).
    """
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(mu, high) > delta:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        # No number lies between them: every further step would leave both as they are.
        if middle in (low, high):
            break
        low, high = (middle, high) if gaussian_delta(mu, middle) > delta else (low, middle)
    # The end at which δ was found small enough: however early the bisection stops, ε is not understated.
    return high


def mu_for_epsilon(epsilon: float, delta: float) -> float:
    """Return the largest μ that is still (ε, δ)-DP, rounded down.

    Args:
        epsilon: Above 0, finite.
        delta: In (0, 1).

    Raises:
        InvalidSpec: ε or δ is outside its range.
    """
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise InvalidSpec("⟦spec.epsilon⟧ must be a finite number above 0.")
    if not 0 < delta < 1:
        raise InvalidDelta("⟦spec.delta⟧ must lie strictly between 0 and 1.")
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if gaussian_delta(middle, epsilon) <= delta else (low, middle)
    # The end at which δ was found small enough: a budget never holds more than it says.
    return low


def cost_ledger_units(sensitivity_squared: int | Fraction, noise_stddev: int, queries: int = 1) -> int:
    """Return the ledger units of `queries` discrete Gaussian releases, rounded up per query.

    Args:
        sensitivity_squared: Squared L2 sensitivity Δ² of one query, exact.
        noise_stddev: σ of the discrete Gaussian, an integer of at least 100.
        queries: Number of such queries that one privacy unit can influence.

    Raises:
        InvalidSpec: σ is below 100, where lattice and closed form part ways.
    """
    if noise_stddev < MINIMUM_NOISE_STDDEV:
        raise InvalidSpec(f"The noise must have an integer σ of at least {MINIMUM_NOISE_STDDEV}.")
    # Discrete noise is a post-processing of continuous noise of this smaller variance, which is what costs.
    mu_squared = Fraction(sensitivity_squared) / (noise_stddev**2 - SMOOTHING_VARIANCE)
    return queries * math.ceil(mu_squared * LEDGER_UNITS_PER_MU_SQUARED)


def limit_units(epsilon: float, delta: float) -> int:
    """Return the ledger units that the budget (ε, δ) holds, rounded down."""
    # In fractions, since the square of a float may round up across a unit.
    return math.floor(Fraction(mu_for_epsilon(epsilon, delta)) ** 2 * LEDGER_UNITS_PER_MU_SQUARED)


def mu_of_ledger_units(ledger_units: int) -> float:
    """Convert ledger units to μ, rounded up."""
    return (
        math.nextafter(math.sqrt(Fraction(ledger_units, LEDGER_UNITS_PER_MU_SQUARED)), math.inf)
        if ledger_units
        else 0.0
    )


def epsilon_of_ledger_units(ledger_units: int, delta: float) -> float:
    """Convert ledger units to ε at δ, rounded up."""
    return epsilon_for_mu(mu_of_ledger_units(ledger_units), delta)


def round_up(value: float, digits: int = EPSILON_DIGITS) -> PrivacyParameter:
    """Round towards +∞, once: a float stands for the decimal that it is written as, so 0.05 stays 0.05."""
    if math.isinf(value):
        return PrivacyParameter(value)
    return _from_steps(math.ceil(_written(value) * 10**digits), digits)


def round_down(value: float, digits: int = EPSILON_DIGITS) -> PrivacyParameter:
    """Round towards −∞, once, with floats read as in `round_up`."""
    return _from_steps(math.floor(_written(value) * 10**digits), digits)


def round_down_significant(value: float) -> PrivacyParameter:
    """Round down to three significant digits, so that δ can be shown exactly as it was used."""
    with localcontext(prec=3, rounding=ROUND_FLOOR):
        return PrivacyParameter(+Decimal(repr(float(value))))


def _written(value: float) -> Fraction:
    # Its decimal, not its binary value: the double 0.1 is a little above 0.1, and would be rounded up.
    return Fraction(repr(float(value)))


def _from_steps(steps: int, digits: int) -> PrivacyParameter:
    return PrivacyParameter(Fraction(steps, 10**digits))


def default_delta(num_units: int) -> PrivacyParameter:
    """Return the δ used when the owner names none: min(1e-5, n^-1.1), rounded down to three digits."""
    return round_down_significant(min(DEFAULT_DELTA_CEILING, math.pow(num_units, -1.1)))


def check_delta(delta: float, num_units: int) -> None:
    """Refuse a δ at or above 1/n.

    Raises:
        InvalidDelta: δ is too large; the message names the largest admissible value.
    """
    if not 0 < delta < 1 / num_units:
        raise InvalidDelta(
            f"δ must lie strictly between 0 and 1/n = {round_down_significant(1 / num_units)} "
            f"for {num_units} privacy units; leave it out to get {default_delta(num_units)}."
        )


def smallest_noise_stddev(sensitivity_squared: int | Fraction, queries: int, ledger_units: int) -> int:
    """Return the smallest integer σ ≥ 100 with which `queries` releases fit into `ledger_units`.

    Args:
        sensitivity_squared: Squared L2 sensitivity of one query.
        queries: Number of queries that one privacy unit influences.
        ledger_units: Ledger units to spend.

    Raises:
        InfeasiblePlan: There is less than one unit per query.
    """
    each = ledger_units // queries
    if each < 1:
        raise InfeasiblePlan(
            "The budget is too small for so many releases: raise ⟦spec.epsilon⟧ or lower ⟦method.steps⟧."
        )
    variance = math.ceil(Fraction(sensitivity_squared) * LEDGER_UNITS_PER_MU_SQUARED / each) + SMOOTHING_VARIANCE
    root = math.isqrt(variance)
    return max(MINIMUM_NOISE_STDDEV, root if root * root == variance else root + 1)


class Charge(NamedTuple):
    """The charge for a release, or for a block of them.

    Attributes:
        ledger_units: In 1e-15 of μ².
        slack: In 1e-18 of δ, beside what the units stand for (docs/mechanisms/poisson_sampling.md); 0 for Gaussian
            releases.
    """

    ledger_units: int
    slack: int = 0


def delta_beside(slack: int, delta: float) -> float:
    """Return δ − slack, rounded down, at which the units of an account are converted to ε.

    Args:
        slack: In 1e-18 of δ, at least 0.
        delta: The δ of the account.

    Returns:
        0 or less where the slack leaves nothing.
    """
    if slack == 0:
        return delta
    return math.nextafter(float(Fraction(delta) - Fraction(slack, SLACK_UNITS_PER_DELTA)), -math.inf)


def epsilon_of_charge(charge: Charge, delta: float) -> float:
    """Convert a charge to ε at δ, slack included, rounded up; infinite where the slack leaves no δ."""
    beside = delta_beside(charge.slack, delta)
    return epsilon_of_ledger_units(charge.ledger_units, beside) if beside > 0 else math.inf


@lru_cache(maxsize=2**14)
def stated_epsilon(charge: Charge, delta: float) -> PrivacyParameter:
    """Return the ε at δ that is stated of a charge, everywhere: the least of four digits whose budget holds it.

    A budget holds a charge if the ledger would accept it, so a charge within ε = 3.3 is never stated as more.
    The result is infinite where the slack leaves no δ.
    """
    stated = round_up(epsilon_of_charge(charge, delta))
    below = _from_steps(round(stated * 10**EPSILON_DIGITS) - 1, EPSILON_DIGITS) if math.isfinite(stated) else stated
    # A charge that fills a budget to its last unit can come out a little above it, by the rounding of floats.
    fits = 0 < below < stated and limit_units(below, delta_beside(charge.slack, delta)) >= charge.ledger_units
    return below if fits else stated


def remaining_epsilon(ledger_units: int, delta: float) -> PrivacyParameter:
    """Return the largest ε of four digits whose budget at δ fits into the units that remain; 0 if none does."""
    if ledger_units <= 0:
        return PrivacyParameter(0.0)
    # An estimate and one step more, then down to the first ε that the integers of the ledger confirm.
    steps = math.floor(_written(epsilon_of_ledger_units(ledger_units, delta)) * 10**EPSILON_DIGITS) + 1
    while steps > 0 and limit_units(_from_steps(steps, EPSILON_DIGITS), delta) > ledger_units:
        steps -= 1
    return _from_steps(steps, EPSILON_DIGITS)


def stated_mu(ledger_units: int) -> PrivacyParameter:
    """Return the least μ of six digits whose square is at least `ledger_units`."""
    steps_squared = Fraction(ledger_units * 10 ** (2 * _MU_DIGITS), LEDGER_UNITS_PER_MU_SQUARED)
    # ⌈√x⌉ in whole numbers is ⌊√(x − 1)⌋ + 1, without a float.
    whole = math.ceil(steps_squared)
    return _from_steps(math.isqrt(whole - 1) + 1 if whole else 0, _MU_DIGITS)


def compute_slack(delta: float, share: float) -> int:
    """Convert a share of δ to units of slack, rounded down."""
    return math.floor(Fraction(delta) * Fraction(share) * SLACK_UNITS_PER_DELTA)


def ledger_units_held_for_slack(slack: int, epsilon: float, delta: float) -> int:
    """Return the ledger units by which a slack lowers what the budget (ε, δ) holds, rounded up.

    Raises:
        BudgetExceeded: The slack is more than half of δ.
    """
    if slack == 0:
        return 0
    # As the slack nears δ, ε grows beyond all bounds: at half of δ the account refuses.
    if 2 * Fraction(slack, SLACK_UNITS_PER_DELTA) > Fraction(delta):
        raise BudgetExceeded(
            "Sampled runs of this account would take more than half of its δ: train without sampling, or with a "
            "smaller slack."
        )
    # A slack is never free, not even where both limits round to the same unit.
    return max(1, limit_units(epsilon, delta) - limit_units(epsilon, delta_beside(slack, delta)))
