"""The meaning of a charge for somebody who guesses whether one unit took part."""

import math
from decimal import ROUND_CEILING, Decimal

from scipy.special import ndtr

from datalens_service.privacy.accounting import SLACK_UNITS_PER_DELTA, Charge, round_up, stated_mu


def membership_advantage(mu: float, slack: float = 0.0) -> float:
    """Return the largest difference of true and false positive rate, 2Φ(μ/2) − 1 + slack, rounded up to four digits.

    Dong, Roth & Su 2022, Section 2; a slack of δ adds to it.
    """
    return min(1.0, round_up(2 * float(ndtr(mu / 2)) - 1 + slack, 4))


def right_guesses(advantage: float) -> str:
    """Return right guesses out of 100 at a membership advantage, prior one half, rounded up to two digits."""
    return f"{(50 + 50 * Decimal(repr(advantage))).quantize(Decimal('0.01'), ROUND_CEILING).normalize():f}"


def tell_risk(word: str, charge: Charge) -> str:
    """Return the largest success of guesses as a sentence.

    Args:
        word: The readers' word for one unit.
        charge: The charge of a job, or of all jobs.
    """
    advantage = membership_advantage(stated_mu(charge.ledger_units), charge.slack / SLACK_UNITS_PER_DELTA)
    most = math.ceil(Decimal(right_guesses(advantage)))
    return f"Of 100 guesses whether one {word} was used, at most {most} are right; a coin gets 50."
