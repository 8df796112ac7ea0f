"""Lower bounds on ε and μ from a single run with many canaries.

Each canary is in or out by a fair coin. An attacker guesses some of the coins; many right guesses refute small ε or μ.

* (ε, δ) (Steinke, Nasr and Jagielski 2023): the number of right guesses is dominated by a binomial law with success
  probability e^ε / (1 + e^ε), up to δ.
* μ-GDP (after Mahloujifar, Melis and Chaudhuri 2024): a recursion over the number of right guesses, proved in
  docs/decisions/0098-one-run-bounds-mu.md. It says more of Gaussian noise.
"""

from typing import Final

import numpy as np
import scipy

from datalens_service.audits.membership import Scores
from datalens_service.errors import InvalidInput

_LARGEST: Final = 50.0
_SMALLEST_MU: Final = 1e-3
_LARGEST_MU: Final = 20.0
_PRECISION: Final = 1e-4
_ROUNDING: Final = 1e-9


def count_right_guesses(scores: Scores, is_included: Scores, guesses: int) -> int:
    """Right among the guesses: the highest half of them are called in, the lowest half out.

    Args:
        scores: (canaries,) higher where the canary seems to be in.
        is_included: (canaries,) its coin.
        guesses: How many canaries are guessed; fixed before looking.
    """
    if guesses < 2 or guesses % 2 or guesses > len(scores):
        raise InvalidInput("Guess an even number of canaries, at most all of them.")
    order = np.argsort(scores, kind="stable")
    half = guesses // 2
    return int(is_included[order[-half:]].sum() + (1 - is_included[order[:half]]).sum())


def p_value(epsilon: float, delta: float, right: int, guesses: int, canaries: int) -> float:
    """Largest probability of `right` or more right guesses under (ε, δ) (theorem 5.2 and appendix D).

    The binomial tail, and for δ the steepest average of its masses below `right`: δ may buy an attacker i further right
    guesses with a probability of 2·canaries·δ/i.
    """
    law = scipy.stats.binom(guesses, 1 / (1 + np.exp(-epsilon)))
    tail = float(law.sf(right - 1))
    if right == 0:
        return 1.0
    lacking = np.arange(1, right + 1)
    steepest = float((np.cumsum(law.pmf(right - lacking)) / lacking).max())
    return min(1.0, tail + 2 * canaries * delta * steepest)


def epsilon_lower_bound(right: int, guesses: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """Largest ε that the guesses refute, at a confidence; 0 if none.

    Args:
        right: Right guesses.
        guesses: All guesses.
        canaries: With a coin each.
        delta: δ of the claim.
        confidence: That the true ε is not below the answer.
    """
    _check(right, guesses, canaries)

    def surplus(epsilon: float) -> float:
        return p_value(epsilon, delta, right, guesses, canaries) - (1 - confidence)

    if surplus(0.0) >= 0:
        return 0.0
    return float(scipy.optimize.brentq(surplus, 0.0, _LARGEST)) if surplus(_LARGEST) > 0 else _LARGEST


def mu_tail(mu: float, right: int, guesses: int, canaries: int) -> float:
    """Largest probability of `right` or more right guesses under μ-GDP, rounded up.

    With T(j) that of j or more: j·T(j) ≤ canaries·Φ(Φ⁻¹((guesses − j + 1)·T(j − 1)/canaries) + μ).
    """
    ndtr, ndtri = scipy.special.ndtr, scipy.special.ndtri
    tail = 1.0
    for count in range(1, right + 1):
        wrong = min(1.0, (guesses - count + 1) * tail / canaries)
        tail = min(tail, canaries / count * float(ndtr(ndtri(wrong) + mu)) * (1 + _ROUNDING))
    return tail


def mu_lower_bound(right: int, guesses: int, canaries: int, confidence: float = 0.95) -> float:
    """Largest μ that the guesses refute, at a confidence; 0 if none.

    Args:
        right: Right guesses.
        guesses: All guesses.
        canaries: With a coin each.
        confidence: That the true μ is not below the answer.
    """
    _check(right, guesses, canaries)

    def surplus(mu: float) -> float:
        return mu_tail(mu, right, guesses, canaries) - (1 - confidence)

    if surplus(_SMALLEST_MU) >= 0:
        return 0.0
    if surplus(_LARGEST_MU) <= 0:
        return _LARGEST_MU
    # Rounded towards no leakage.
    return float(scipy.optimize.brentq(surplus, _SMALLEST_MU, _LARGEST_MU, xtol=_PRECISION)) - _PRECISION


def _check(right: int, guesses: int, canaries: int) -> None:
    if not 0 <= right <= guesses <= canaries:
        raise InvalidInput("Right guesses, guesses and canaries must not decrease in this order.")
