"""The law of the discrete Gaussian; in a module that needs no torch, as the tests under every Python do."""

import numpy as np
from scipy import stats

from datalens_service.privacy.randomness import NoiseSource

from .alarm import expect


def expect_exact(stddev: int, draws: int) -> None:
    """Compare so many draws with the law of the discrete Gaussian; a false alarm has a probability of 1e-10."""
    drawn = NoiseSource().discrete_gaussian((draws,), stddev)
    expect(drawn.dtype == np.int64, "noise consists of integers")
    support = np.arange(-4 * stddev, 4 * stddev + 1)
    weights = np.exp(-(support**2) / (2 * stddev**2))
    everywhere = np.arange(-12 * stddev, 12 * stddev + 1)
    weights /= np.exp(-(everywhere**2) / (2 * stddev**2)).sum()
    observed = [(drawn == value).sum() for value in support]
    observed.append(draws - sum(observed))
    expected = np.append(weights, 1 - weights.sum()) * draws
    # Beyond four deviations two draws at most are expected, and there Pearson's statistic has heavy tails.
    outcome = stats.power_divergence(observed, expected, lambda_="log-likelihood")
    expect(outcome.pvalue > 1e-10, f"noise at σ = {stddev} is exact")
