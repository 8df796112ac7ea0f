"""Two accountants that share no line agree, within the resolution that is promised."""

import math
import sys
from fractions import Fraction

import pytest

from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.privacy import accounting
from datalens_service.privacy.accounting import compute_slack
from datalens_service.privacy.poisson_sampling import PoissonSampling, choose_numerator
from datalens_service.privacy.randomness import COIN_BITS
from datalens_service.privacy.recomputation import (
    RESOLUTION,
    GaussianReleases,
    SampledReleases,
    composed_epsilon,
    discrete_releases,
)


@pytest.mark.parametrize("delta", [1e-4, 1e-6, 1e-9])
@pytest.mark.parametrize("epsilon", [0.01, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 7.0, 10.0])
def test_agrees_with_the_closed_form_from_above(epsilon: float, delta: float) -> None:
    """27 points; three kinds of releases that together cost μ²."""
    mu_squared = Fraction(accounting.mu_for_epsilon(epsilon, delta)) ** 2
    parts = [GaussianReleases(count * weight / mu_squared, count) for count, weight in ((1, 2), (70, 3), (1000, 6))]
    assert sum(part.mu_squared for part in parts) == mu_squared
    assert -1e-9 <= composed_epsilon(parts, delta) - epsilon <= RESOLUTION


def test_discrete_noise_costs_what_the_ledger_charges() -> None:
    releases = discrete_releases(Fraction(800), 5000, 15)
    charged = accounting.cost_ledger_units(800, 5000, 15)
    assert 0 <= charged - releases.mu_squared * accounting.LEDGER_UNITS_PER_MU_SQUARED < 15


def test_far_out_it_is_infinite_and_fast() -> None:
    assert composed_epsilon([GaussianReleases(Fraction(1, 1000), 10**9)], 1e-5) == math.inf


def test_delta_beyond_the_discretisation_is_refused() -> None:
    with pytest.raises(InvalidInput, match="1e-12"):
        composed_epsilon([GaussianReleases(Fraction(1), 1)], 1e-13)


def test_missing_library_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(WorkerUnavailable, match=r"pip install 'datalens-service\[worker\]'"):
        composed_epsilon([GaussianReleases(Fraction(1), 1)], 1e-5)


@pytest.mark.parametrize("multiplier", [0.7551, 2.0051])
def test_sampled_draws_are_covered_by_their_price_and_by_no_rounded_one(multiplier: float) -> None:
    """A price at two digits of the multiplier is half a percent of ε too low."""
    numerator, slack = choose_numerator(40, 1_000), compute_slack(1e-5, 0.1)
    releases = SampledReleases(Fraction(multiplier) ** 2, Fraction(numerator, 2**COIN_BITS), 60)
    excess = [
        releases.excess_over(Fraction(block.ledger_units_zero_out, 10**15), Fraction(slack, 10**18))
        for block in (
            PoissonSampling.priced(of, num_units=1_000, numerator=numerator, draws=60, slack=slack)
            for of in (multiplier, round(multiplier, 2))
        )
    ]
    assert excess[0] <= 0 < excess[1]
