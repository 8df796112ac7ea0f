"""Soft labels of public images, from all noisy votes for cells of them together.

A linear layer takes each vote for an image at the centre of its cell: few votes of one cell say little, and images of a
cell differ.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from datalens_service.base.arrays import Floats

Features = NDArray[np.float32]

# On training images of CIFAR-10 that were set aside.
_PENALTY: Final = 1e-3
_ITERATIONS: Final = 200


def label_softly(features: Features, centres: Features, votes: Floats) -> Features:
    """Return soft labels of images (n, classes).

    Args:
        features: (n, d) features of public images.
        centres: (cells, d).
        votes: (classes, cells) noisy.
    """
    return _likely(features @ _fit(centres.astype(np.float64), votes)).astype(np.float32)


def _fit(centres: Floats, votes: Floats) -> Floats:
    """Fit weights (d, classes) of a softmax regression in which votes count as often as they were given."""
    counted = np.maximum(votes, 0).T
    counted /= max(counted.sum(), 1.0)
    shape = centres.shape[1], len(votes)

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        likely = _likely(centres @ weights)
        loss = _PENALTY * (flat @ flat) - (counted * np.log(likely)).sum()
        slope = centres.T @ (likely * counted.sum(axis=1, keepdims=True) - counted)
        return float(loss), (slope + 2 * _PENALTY * weights).ravel()

    start, options = np.zeros(shape).ravel(), {"maxiter": _ITERATIONS}
    return np.asarray(minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x.reshape(shape))


def _likely(scores: Floats) -> Floats:
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
