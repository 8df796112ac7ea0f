"""The risk in words is never below what the best attack on the released numbers reaches."""

import re

import numpy as np
import pytest
from scipy.integrate import trapezoid

from datalens_service.privacy.accounting import Charge, limit_units, mu_of_ledger_units
from datalens_service.privacy.guarantee import tell_risk


def most_right(mu: float, slack: float = 0.0) -> float:
    """The best of all guesses, out of 100: half of the larger of two densities, integrated on a fine grid."""
    at = np.linspace(-12, 12 + mu, 2_000_001)
    absent, present = (np.exp(-((at - mean) ** 2) / 2) / np.sqrt(2 * np.pi) for mean in (0.0, mu))
    return 100 * float(trapezoid(np.maximum(absent, present), at)) / 2 + 50 * slack


def stated(charge: Charge, word: str = "image") -> int:
    found = re.fullmatch(
        rf"Of 100 guesses whether one {word} was used, at most (\d+) are right; a coin gets 50\.",
        tell_risk(word, charge),
    )
    assert found
    return int(found[1])


@pytest.mark.parametrize("epsilon", [0.01, 0.2, 1.0, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_the_sentence_states_the_best_attack_rounded_up(epsilon: float, delta: float) -> None:
    ledger_units = limit_units(epsilon, delta)
    best = most_right(mu_of_ledger_units(ledger_units))
    assert best - 1e-6 <= stated(Charge(ledger_units)) <= best + 1.01


def test_a_slack_adds_to_it() -> None:
    ledger_units = limit_units(1.0, 1e-5)
    best = most_right(mu_of_ledger_units(ledger_units), 0.1)
    assert best - 1e-6 <= stated(Charge(ledger_units, 10**17)) <= best + 1.01


def test_nothing_spent_is_a_coin_and_the_word_is_that_of_the_unit() -> None:
    assert stated(Charge(0), "patient") == 50
