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
from datalens_service.models.generators.mixture import nearest

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Sampler = Callable[[Labels, float, np.random.Generator], Floats]
"""Vectors for labels, so much wider than records lie."""

_RANK: Final = 60
_CLASSES: Final = 10
_COMPONENTS, _MOVES, _FEWEST = 6, 4, 50.0
# Counts get a tenth of the means' μ², as in the product.
_COUNT_FACTOR, _SUM_FACTOR = math.sqrt(10), math.sqrt(10 / 9)


class _Noise:
    """Gaussian noise for shares of a budget; none for an infinite one."""

    def __init__(self, mu: float, budget_fractions: tuple[float, float, float], rng: np.random.Generator) -> None:
        self.stddevs = [1 / (mu * math.sqrt(fraction)) for fraction in budget_fractions]
        self._rng = rng

    def add(self, values: Floats, stddev: float) -> Floats:
        return np.asarray(values + stddev * self._rng.standard_normal(values.shape))

    def add_symmetric(self, matrices: Floats, stddev: float) -> Floats:
        upper = np.triu(self._rng.standard_normal(matrices.shape))
        return np.asarray(matrices + stddev * (upper + np.triu(upper, 1).swapaxes(-1, -2)))


def fit_gaussian(vectors: Floats, labels: Labels, chosen: Representation, mu: float, seed: int) -> Sampler:
    """As `moments`: subspace, means, covariances, with 30, 20 and 50 % of μ²."""
    noise, fit = _Noise(mu, (0.3, 0.2, 0.5), np.random.default_rng(seed)), GaussianFit()
    rows, origin = _around_origin(vectors, chosen)
    ratio = chosen.residual_norm / chosen.vector_norm
    fit.estimate_subspace(noise.add_symmetric(rows.T @ rows, noise.stddevs[0]), _RANK)
    points = rows @ fit.basis
    fit.estimate_means(_noisy_sums(points, labels, noise, noise.stddevs[1]))
    residuals = _clipped((points - fit.means[labels]) / ratio)
    scatter = noise.add_symmetric(_scatters(residuals, labels), noise.stddevs[2])
    fit.estimate_covariances(scatter * ratio**2, noise.stddevs[2] * ratio**2)
    means = fit.means @ fit.basis.T * chosen.vector_norm + origin
    return _sampler(means, np.einsum("dq,cqk->cdk", fit.basis, fit.factors) * chosen.vector_norm)


def fit_hierarchical(vectors: Floats, labels: Labels, chosen: Representation, mu: float, seed: int) -> Sampler:
    """As `shapes`: means, pooled scatter, scatters of the classes, with 15, 30 and 55 % of μ²."""
    noise = _Noise(mu, (0.15, 0.3, 0.55), np.random.default_rng(seed))
    rows, origin = _around_origin(vectors, chosen)
    fit, _ = _hierarchical(rows, labels, chosen, noise)
    return _sampler(fit.means + origin, np.einsum("dq,cqk->cdk", fit.basis, fit.factors))


def fit_components(vectors: Floats, labels: Labels, chosen: Representation, mu: float, seed: int) -> Sampler:
    """The same with six components per class: each is a class of its own, samples take one by its noisy count.

    A third of μ² places public starts and moves them four times; the rest is as in `fit_hierarchical`.
    """
    rng = np.random.default_rng(seed)
    rows, origin = _around_origin(vectors, chosen)
    start, _ = _hierarchical(rows, labels, chosen, _Noise(mu, (0.05, 0.05, 0.05), rng))
    points = rows * chosen.vector_norm @ start.basis
    centres = (start.means @ start.basis)[:, None] + 0.7 * np.einsum(
        "cij,ckj->cki", start.factors, rng.standard_normal((_CLASSES, _COMPONENTS, start.basis.shape[1]))
    )
    moving = _Noise(mu, (0.05, 0.05, 0.05), rng)
    for _ in range(_MOVES):
        groups = nearest(points, labels, centres)
        table = _noisy_sums(points / chosen.vector_norm, groups, moving, moving.stddevs[0], _CLASSES * _COMPONENTS)
        moved = table[:, 1:] * chosen.vector_norm / np.maximum(table[:, :1], 1.0)
        seen = table[:, :1] > _FEWEST
        centres = np.where(seen, moved, centres.reshape(moved.shape)).reshape(centres.shape)
    groups = nearest(points, labels, centres)
    noise = _Noise(mu, (0.2, 0.15, 0.3), rng)
    fit, counts = _hierarchical(rows, groups, chosen, noise, _CLASSES * _COMPONENTS)
    draw = _sampler(fit.means + origin, np.einsum("dq,cqk->cdk", fit.basis, fit.factors))
    weights = np.maximum(counts, 1.0).reshape(_CLASSES, _COMPONENTS)
    weights /= weights.sum(axis=1, keepdims=True)

    def draw_components(classes: Labels, spread: float, generator: np.random.Generator) -> Floats:
        thresholds = np.cumsum(weights, axis=1)[classes, :-1]
        picked = (generator.random((len(classes), 1)) > thresholds).sum(axis=1)
        return draw(classes * _COMPONENTS + picked, spread, generator)

    return draw_components


FITS: Final = {"gaussian": fit_gaussian, "hierarchical": fit_hierarchical, "components": fit_components}
"""By name."""


def _around_origin(vectors: Floats, chosen: Representation) -> tuple[Floats, Floats]:
    """Vectors of length at most 1, and the origin that was subtracted."""
    origin = np.zeros(vectors.shape[1]) if chosen.origin is None else chosen.origin
    return _clipped((vectors - origin) / chosen.vector_norm), origin


def _hierarchical(
    rows: Floats, groups: Labels, chosen: Representation, noise: _Noise, number: int = _CLASSES
) -> tuple[HierarchicalFit, Floats]:
    """The fit of groups of clipped rows, and their noisy counts."""
    fit, scale = HierarchicalFit(), chosen.residual_norm**2
    table = _noisy_sums(rows, groups, noise, noise.stddevs[0], number)
    sum_stddev = noise.stddevs[0] * _SUM_FACTOR * chosen.vector_norm
    fit.estimate_means(table[:, 0], table[:, 1:] * chosen.vector_norm, sum_stddev)
    residuals = _clipped((rows * chosen.vector_norm - fit.means[groups]) / chosen.residual_norm)
    pooled = noise.add_symmetric(residuals.T @ residuals, noise.stddevs[1])
    fit.estimate_shared(pooled * scale, noise.stddevs[1] * scale, _RANK)
    scatters = noise.add_symmetric(_scatters(residuals @ fit.basis, groups, number), noise.stddevs[2])
    fit.estimate_classes(scatters * scale, noise.stddevs[2] * scale)
    return fit, table[:, 0]


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


def _noisy_sums(rows: Floats, labels: Labels, noise: _Noise, stddev: float, number: int = _CLASSES) -> Floats:
    counts = np.array([[float((labels == label).sum())] for label in range(number)])
    sums = np.stack([rows[labels == label].sum(axis=0) for label in range(number)])
    return np.concatenate([noise.add(counts, stddev * _COUNT_FACTOR), noise.add(sums, stddev * _SUM_FACTOR)], axis=1)


def _scatters(rows: Floats, labels: Labels, number: int = _CLASSES) -> Floats:
    return np.stack([rows[labels == label].T @ rows[labels == label] for label in range(number)])
