"""A class-conditional Gaussian in a linear subspace: fitted to released moments, and drawn from.

Everything here is post-processing of noisy sums.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats, Tensors
from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.generators.edges import sharpen
from datalens_service.models.generators.requests import fill_requests


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw images (n, d), basis·(mean_y + factor_y·z + deviations·ε) with z, ε ~ N(0, I), clipped to [0, 1].

    Where the model has a linear discriminant, a sample has the class that this discriminant sees.

    Args:
        settings: `edges`, True to sharpen what was drawn.
        tensors: `basis` (d, q), `means` (classes, q), `factors` (classes or 1, q, directions); optional `deviations`
            (q,); optional `weights` (classes, q) and `biases` (classes,) of the discriminant.
    """
    basis, propose = tensors["basis"], partial(_draw_points, tensors, rng=rng)
    if "weights" in tensors:
        points = fill_requests(labels, basis.shape[1], propose, partial(discriminate, tensors))
    else:
        points = propose(labels)
    pixels: NDArray[np.float32] = points @ basis.T
    pixels.clip(0.0, 1.0, out=pixels)
    if not settings.get("edges", False):
        return pixels
    return sharpen(pixels.reshape(-1, schema.channels, schema.height, schema.width)).reshape(pixels.shape)


def _draw_points(tensors: Tensors, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw coordinates (n, q) of samples."""
    means, factors = tensors["means"], tensors["factors"]
    noise = rng.standard_normal((len(labels), factors.shape[2]), dtype=np.float32)
    factors = np.broadcast_to(factors, (len(means), *factors.shape[1:]))
    points = np.empty((len(labels), means.shape[1]), dtype=np.float32)
    for label in np.unique(labels):
        rows = labels == label
        points[rows] = means[label] + noise[rows] @ factors[label].T
    if "deviations" in tensors:
        points += tensors["deviations"] * rng.standard_normal(points.shape, dtype=np.float32)
    return points


def discriminate(tensors: Tensors, points: NDArray[np.float32]) -> Labels:
    """Return the classes (n,) that the discriminant of a model sees in coordinates (n, q)."""
    labels: Labels = (points @ tensors["weights"].T + tensors["biases"]).argmax(axis=1)
    return labels


def add_center(center: float, tensors: Tensors) -> Tensors:
    """Extend a model that was fitted to images less a constant brightness by one direction, of fixed length."""
    basis, means, factors = tensors["basis"], tensors["means"], tensors["factors"]
    length = math.sqrt(len(basis))
    grey = np.full((len(basis), 1), 1 / length, dtype=np.float32)
    farther = np.full((*means.shape[:-1], 1), center * length, dtype=np.float32)
    wider = [(0, 0)] * (factors.ndim - 2) + [(0, 1), (0, 1)]
    unmoved = {
        name: np.pad(tensors[name], [(0, 0)] * (tensors[name].ndim - 1) + [(0, 1)])
        for name in ("deviations", "weights")
        if name in tensors
    }
    moved = {
        "basis": np.concatenate([basis, grey], axis=1),
        "means": np.concatenate([means, farther], axis=-1),
        "factors": np.pad(factors, wider),
    }
    return tensors | moved | unmoved


class GaussianFit:
    """Collects the three noisy releases; lengths are in units of the clipping norm.

    Attributes:
        basis: (d, q) orthonormal columns, after `estimate_subspace`.
        means: (classes, q), after `estimate_means`.
        factors: (classes, q, q) with factor·factorᵀ the covariance, after `estimate_covariances`.
        shares: Shares of the classes by their released counts; None where they look about as frequent.
    """

    def __init__(self) -> None:
        self.basis: Floats = np.empty((0, 0))
        self.means: Floats = np.empty((0, 0))
        self._counts: Floats = np.empty(0)
        self.factors: Floats = np.empty((0, 0, 0))
        self.shares: tuple[float, ...] | None = None

    def estimate_subspace(self, second_moment: Floats, rank: int) -> None:
        """Keep the `rank` leading eigenvectors of a noisy (d, d) second moment."""
        _, vectors = np.linalg.eigh(second_moment)
        self.basis = vectors[:, ::-1][:, :rank]

    def estimate_means(self, counts_and_sums: Floats) -> None:
        """Divide noisy sums by noisy counts; a class that looks empty counts as one record."""
        self._counts = np.maximum(counts_and_sums[:, 0], 1.0)
        self.means = counts_and_sums[:, 1:] / self._counts[:, None]

    def estimate_covariances(self, scatter: Floats, noise_stddev: float) -> None:
        """Factor noisy scatter matrices (classes, q, q); directions below the noise level are dropped.

        Args:
            scatter: Noisy Σ r·rᵀ per class.
            noise_stddev: Noise of one entry; the largest eigenvalue of such noise is about stddev·√q.
        """
        bar = noise_stddev * math.sqrt(scatter.shape[-1])
        values, vectors = np.linalg.eigh(scatter)
        variances = np.where(values > bar, values, 0.0) / self._counts[:, None]
        self.factors = vectors * np.sqrt(variances)[:, None, :]

    def tensors(self, clip_norm: float) -> Tensors:
        """Return the tensors of `draw`, in units of pixels in [0, 1]."""
        parts = {"basis": self.basis, "means": self.means * clip_norm, "factors": self.factors * clip_norm}
        return {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}
