"""docs/mechanisms/branches.md: whatever a released value decides, the largest μ and the largest slack cover it."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import norm

Floats = NDArray[np.float64]
FIRST = 0.4
LOSSES = np.linspace(-14 * FIRST, 14 * FIRST, 40_001)
EPSILONS = np.array([-1.0, 0.0, 0.3, 1.0, 2.0, 4.0])


class Branch(NamedTuple):
    """With probability `slack` everything is told, else there is Gaussian noise: dominated up to the slack, tightly."""

    mu: float
    slack: float

    def delta(self, epsilons: Floats) -> Floats:
        """Hockey-stick divergence, exact."""
        return self.slack + (1 - self.slack) * gaussian_delta(self.mu, epsilons)


def gaussian_delta(mu: float, epsilons: Floats) -> Floats:
    first, second = log_ndtr(mu / 2 - epsilons / mu), epsilons + log_ndtr(-mu / 2 - epsilons / mu)
    return np.asarray(np.exp(first) - np.exp(second))


def worst_delta(branches: list[Branch], epsilon: float) -> float:
    """Of a Gaussian release of μ = `FIRST`, after which the branch is taken that is worst at what is left of ε.

    A loss of a Gaussian is N(μ²/2, μ²) (docs, step 1).
    """
    density = norm.pdf(LOSSES, FIRST**2 / 2, FIRST)
    worst = np.max([branch.delta(epsilon - LOSSES) for branch in branches], axis=0)
    return float(np.trapezoid(density * worst, LOSSES))


def bound(mu: float, slack: float, epsilon: float) -> float:
    return float(gaussian_delta(math.hypot(FIRST, mu), np.array([epsilon]))[0]) + slack


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(
    "branches",
    [
        [Branch(1.0, 0.0), Branch(0.6, 1e-3)],
        [Branch(0.3, 0.0), Branch(0.3, 1e-6), Branch(1.7, 1e-9)],
        [Branch(0.05, 0.2), Branch(2.0, 0.0)],
    ],
    ids=str,
)
def test_the_largest_of_each_covers_every_choice(branches: list[Branch], epsilon: float) -> None:
    mu, slack = max(branch.mu for branch in branches), max(branch.slack for branch in branches)
    assert worst_delta(branches, epsilon) <= bound(mu, slack, epsilon) + 1e-9


@pytest.mark.parametrize("wrong", [(0.6, 1e-3), (1.0, 0.0)], ids=["smaller mu", "smaller slack"])
def test_no_less_covers_it(wrong: tuple[float, float]) -> None:
    branches = [Branch(1.0, 0.0), Branch(0.6, 1e-3)]
    assert any(worst_delta(branches, epsilon) > bound(*wrong, epsilon) + 1e-6 for epsilon in EPSILONS)


def test_branches_that_fit_a_budget_each_may_not_fit_it_together() -> None:
    """Why one limit for all: the same δ at ε = 2, once all of it as slack."""
    quiet, epsilon = Branch(1.0, 0.0), 2.0
    alone = worst_delta([quiet], epsilon)
    told = Branch(0.1, alone - bound(0.1, 0.0, epsilon))
    assert worst_delta([told], epsilon) == pytest.approx(alone, rel=1e-6)
    assert worst_delta([quiet, told], epsilon) > 1.2 * alone


def test_one_branch_alone_is_plain_composition() -> None:
    for epsilon in EPSILONS:
        assert worst_delta([Branch(0.9, 0.0)], epsilon) == pytest.approx(bound(0.9, 0.0, epsilon), abs=1e-9)
