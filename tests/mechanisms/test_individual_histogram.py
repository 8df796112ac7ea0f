"""Histogram of individual ε: its price, its bins, and how far off its statistics are."""

import numpy as np
import pytest

from datalens_service.base.errors import ContributionFailed
from datalens_service.mechanisms import IndividualHistogram
from datalens_service.mechanisms.individual_histogram import (
    DEFAULT_NOISE_STDDEV,
    IndividualEpsilons,
    IndividualFigures,
)
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

WORST = 1.712
PARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
PUBLISHED = (0.563, 0.672, 0.790, 0.967, 1.422)
"""Quantiles of individual ε on MNIST (per-instance accounting, appendix E); 3 % of the records are at the worst."""


def histogram(num_units: int = 60_000, **changes: float) -> IndividualHistogram:
    return IndividualHistogram(
        num_units=num_units, largest_epsilon=WORST, delta=1e-5, noise_stddev=DEFAULT_NOISE_STDDEV
    ).model_copy(update=changes)


def contributions(epsilons: np.ndarray) -> IndividualEpsilons:
    return IndividualEpsilons(epsilons, np.arange(len(epsilons)))


def test_replacing_a_unit_costs_twice_what_emptying_it_costs():
    assert histogram().cost() == 100_090_081_073
    assert histogram().cost(NeighboringRelation.REPLACE_ONE) == 200_180_162_146


def test_a_unit_stands_in_one_bin_whatever_its_number():
    sums = histogram(bins=4).exact_sum(contributions(np.array([-1.0, 0.0, WORST / 2, WORST, 1e300, np.nan])))
    assert sums.tolist() == [2, 0, 1, 2]


def test_a_unit_that_stands_there_twice_is_refused():
    with pytest.raises(ContributionFailed):
        histogram().exact_sum(IndividualEpsilons(np.array([0.1, 0.2]), np.array([5, 5])))


def test_shares_are_shares_whatever_the_noise():
    shares = histogram(100).shares(np.random.default_rng(0).integers(-300, 300, 64))
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1)
    exact = np.random.default_rng(1).multinomial(100, np.full(64, 1 / 64))
    np.testing.assert_allclose(histogram(100).shares(exact), exact / 100, atol=1e-12)


@pytest.mark.usefixtures("seeded_entropy")
def test_statistics_of_60000_units_are_within_one_and_a_half_percent():
    rng = np.random.default_rng(0)
    anchors = (0.0, *PARTS, 0.97, 1.0)
    epsilons = np.interp(rng.random(60_000), anchors, (0.45, *PUBLISHED, WORST, WORST))
    exact = np.array([epsilons.mean(), *np.quantile(epsilons, PARTS)])
    account = MemoryAccount(40 * histogram().cost())
    errors = [np.abs(released_statistics(epsilons, step, account) / exact - 1).mean() for step in range(40)]
    assert np.mean(errors) <= 0.015


def released_statistics(epsilons: np.ndarray, step: int, account: MemoryAccount) -> np.ndarray:
    noisy = histogram().release(lambda: contributions(epsilons), step=step, account=account, noise=NoiseSource())
    figures = IndividualFigures.from_counts(histogram(), noisy)
    return np.array([figures.mean, *(quantile.epsilon for quantile in figures.quantiles)])
