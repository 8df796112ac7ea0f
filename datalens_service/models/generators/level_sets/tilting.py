"""Exponential tilting: the distribution nearest to the samples' own whose mean features are those of the records.

Samples q are weighted by exp(w·φ), the distribution of mean m with the least divergence from q (Jaynes 1957; under
differential privacy Hardt, Ligett, McSherry 2012, "A Simple and Practical Algorithm for Differentially Private Data
Release"). Accepting samples in proportion to such weights is rejection sampling (Azadi et al. 2019, "Discriminator
Rejection Sampling", with a trained ratio). Means are noisy, so w is penalised.
"""

from typing import Final

import numpy as np
from scipy.optimize import minimize

from datalens_service.base.arrays import Floats

# Penalty of weights: the least, which keeps them from following samples one by one, and that of the noise, as a
# multiple of its variance. Chosen on 50,000 training images of MNIST at ε = 1, where both are about equal.
_LEAST_PENALTY: Final = 0.004
_PENALTY_PER_VARIANCE: Final = 500.0
_ITERATIONS: Final = 60


def penalty(noise_stddev: float) -> float:
    """Return the penalty of the weights, for a noise of this deviation on each number of a mean."""
    return max(_LEAST_PENALTY, _PENALTY_PER_VARIANCE * noise_stddev**2)


def fit_tilt(features: Floats, mean: Floats, penalty: float) -> Floats:
    """Fit weights w (d,) that move the mean of samples, weighted by exp(w·φ), towards `mean`.

    Args:
        features: (n, d) φ of released samples.
        mean: (d,), released.
        penalty: Factor of ‖w‖²/2.
    """
    away = features.astype(np.float64) - mean

    def objective(weights: Floats) -> tuple[float, Floats]:
        scores = away @ weights
        largest = scores.max()
        shares = np.exp(scores - largest)
        total = shares.sum()
        value = largest + np.log(total / len(away)) + penalty / 2 * (weights @ weights)
        return float(value), shares @ away / total + penalty * weights

    start = np.zeros(features.shape[1])
    fitted = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": _ITERATIONS})
    return np.asarray(fitted.x)


def find_level(scores: Floats, share: float) -> float:
    """Find the level l at which the mean of min(1, exp(score − l)), the share of accepted samples, is `share`."""
    low, high = float(scores.min()) - 1.0, float(scores.max()) + 50.0
    for _ in range(60):
        middle = (low + high) / 2
        accepted = np.exp(np.minimum(0.0, scores - middle)).mean()
        low, high = (middle, high) if accepted > share else (low, middle)
    return high
