"""Released models of vectors, with Gaussian noise in floating point: trials only, no release of the product."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.image_trials.representations import Representation
from datalens_service.models.generators.gaussian import GaussianFit
from datalens_service.models.generators.hierarchical_gaussian import HierarchicalFit

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Sampler = Callable[[Labels, float, np.random.Generator], Floats]
"""Vectors for labels, so much wider than records lie."""

_RANK: Final = 60
_CLASSES: Final = 10
# Counts get a tenth of the means' μ², as in the product.
_COUNT_FACTOR, _SUM_FACTOR = math.sqrt(10), math.sqrt(10 / 9)


class _Noise:
    """Gaussian noise for shares of a budget; none for an infinite one."""

    def __init__(self, mu: float, shares: tuple[float, float, float], rng: np.random.Generator) -> None:
        self.stddevs = [1 / (mu * math.sqrt(share)) for share in shares]
        self._rng = rng

    def add(self, values: Floats, stddev: float) -> Floats:
        return np.asarray(values + stddev * self._rng.standard_normal(values.shape))

    def add_symmetric(self, matrices: Floats, stddev: float) -> Floats:
        upper = np.triu(self._rng.standard_normal(matrices.shape))
        return np.asarray(matrices + stddev * (upper + np.triu(upper, 1).swapaxes(-1, -2)))


def fit_gaussian(vectors: Floats, labels: Labels, chosen: Representation, mu: float, seed: int) -> Sampler:
    """As `moments`: subspace, means, covariances, with 30, 20 and 50 % of μ²."""
    noise, fit = _Noise(mu, (0.3, 0.2, 0.5), np.random.default_rng(seed)), GaussianFit()
    rows, ratio = _clipped(vectors / chosen.vector_norm), chosen.residual_norm / chosen.vector_norm
    fit.estimate_subspace(noise.add_symmetric(rows.T @ rows, noise.stddevs[0]), _RANK)
    points = rows @ fit.basis
    fit.estimate_means(_noisy_sums(points, labels, noise, noise.stddevs[1]))
    residuals = _clipped((points - fit.means[labels]) / ratio)
    scatter = noise.add_symmetric(_scatters(residuals, labels), noise.stddevs[2])
    fit.estimate_covariances(scatter * ratio**2, noise.stddevs[2] * ratio**2)
    means = fit.means @ fit.basis.T * chosen.vector_norm
    return _sampler(means, np.einsum("dq,cqk->cdk", fit.basis, fit.factors) * chosen.vector_norm)


def fit_hierarchical(vectors: Floats, labels: Labels, chosen: Representation, mu: float, seed: int) -> Sampler:
    """As `shapes`: means, pooled scatter, scatters of the classes, with 15, 30 and 55 % of μ²."""
    noise, fit = _Noise(mu, (0.15, 0.3, 0.55), np.random.default_rng(seed)), HierarchicalFit()
    origin = np.zeros(vectors.shape[1]) if chosen.origin is None else chosen.origin
    rows = _clipped((vectors - origin) / chosen.vector_norm)
    table, scale = _noisy_sums(rows, labels, noise, noise.stddevs[0]), chosen.residual_norm**2
    fit.estimate_means(
        table[:, 0], table[:, 1:] * chosen.vector_norm, noise.stddevs[0] * _SUM_FACTOR * chosen.vector_norm
    )
    residuals = _clipped((rows * chosen.vector_norm - fit.means[labels]) / chosen.residual_norm)
    pooled = noise.add_symmetric(residuals.T @ residuals, noise.stddevs[1])
    fit.estimate_shared(pooled * scale, noise.stddevs[1] * scale, _RANK)
    scatters = noise.add_symmetric(_scatters(residuals @ fit.basis, labels), noise.stddevs[2])
    fit.estimate_classes(scatters * scale, noise.stddevs[2] * scale)
    return _sampler(fit.means + origin, np.einsum("dq,cqk->cdk", fit.basis, fit.factors))


FITS: Final = {"gaussian": fit_gaussian, "hierarchical": fit_hierarchical}
"""By name."""


def _sampler(means: Floats, factors: Floats) -> Sampler:
    def draw(labels: Labels, spread: float, rng: np.random.Generator) -> Floats:
        points = rng.standard_normal((len(labels), factors.shape[-1])) * spread
        vectors = np.empty((len(labels), means.shape[1]))
        for label in range(len(means)):
            rows = labels == label
            vectors[rows] = means[label] + points[rows] @ factors[label].T
        return vectors

    return draw


def _clipped(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1.0))


def _noisy_sums(rows: Floats, labels: Labels, noise: _Noise, stddev: float) -> Floats:
    counts = np.array([[float((labels == label).sum())] for label in range(_CLASSES)])
    sums = np.stack([rows[labels == label].sum(axis=0) for label in range(_CLASSES)])
    return np.concatenate([noise.add(counts, stddev * _COUNT_FACTOR), noise.add(sums, stddev * _SUM_FACTOR)], axis=1)


def _scatters(rows: Floats, labels: Labels) -> Floats:
    return np.stack([rows[labels == label].T @ rows[labels == label] for label in range(_CLASSES)])
