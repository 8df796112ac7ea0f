"""A mixture of Gaussians per class in a linear subspace: fitted to released sums, and drawn from.

Everything here is post-processing of noisy sums. One Gaussian per class cannot bend: a class of two kinds of images
gets a mean that looks like neither. Components that stand out little from their noise are pulled towards their class.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats, Tensors
from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.generators.gaussian.gaussian import GaussianFit

# Centres are drawn a little closer to the mean than records lie.
_SPREAD: Final = 0.7
# A component is kept if its count stands out from the noise by this many standard deviations.
_DEVIATIONS: Final = 3.0


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw images (n, d), basis·(mean_yk + factor_yk·z), k by the weights of class y, z ~ N(0, I), clipped to [0, 1].

    Args:
        tensors: `basis` (d, q), `weights` (classes, K), `means` (classes, K, q), `factors` (classes, K, q, q).
    """
    basis, means, factors = tensors["basis"], tensors["means"], tensors["factors"]
    thresholds = np.cumsum(tensors["weights"], axis=1)[labels]
    chosen = (rng.random((len(labels), 1), dtype=np.float32) * thresholds[:, -1:] > thresholds[:, :-1]).sum(axis=1)
    points = rng.standard_normal((len(labels), basis.shape[1]), dtype=np.float32)
    for label, component in {*zip(labels.tolist(), chosen.tolist(), strict=True)}:
        rows = (labels == label) & (chosen == component)
        points[rows] = means[label, component] + points[rows] @ factors[label, component].T
    pixels: NDArray[np.float32] = points @ basis.T
    return pixels.clip(0.0, 1.0)


def nearest(points: Floats, labels: Labels, centres: Floats) -> NDArray[np.int64]:
    """Return the number of the component, among all classes', whose centre is nearest to each record in its own class.

    Args:
        points: (n, q).
        labels: (n,).
        centres: (classes, K, q).

    Returns:
        int64 (n,) in [0, classes·K): a function of each record alone and of released centres.
    """
    components = centres.shape[1]
    distances = np.stack([((points - centres[labels, k]) ** 2).sum(axis=1) for k in range(components)], axis=1)
    return np.asarray(labels * components + distances.argmin(axis=1), dtype=np.int64)


class MixtureFit:
    """Collects the noisy releases that follow a Gaussian per class.

    Args:
        start: The Gaussians after their three releases.
        components: K, per class.
        pooling: Records' worth of the class's covariance in that of each component.
        rng: Public; draws the first centres.

    Attributes:
        centres: (classes, K, q) in units of the clipping norm.
    """

    def __init__(self, start: GaussianFit, components: int, pooling: float, rng: np.random.Generator) -> None:
        self._start = start
        self._pooling = pooling
        classes, rank = start.means.shape
        away = rng.standard_normal((classes, components, rank))
        self.centres = start.means[:, None] + _SPREAD * np.einsum("cij,ckj->cki", start.factors, away)
        self._counts: Floats = np.ones((classes, components))
        self._weights: Floats = self._counts / components
        self._factors: Floats = np.zeros((classes, components, rank, rank))

    def estimate_centres(self, counts_and_sums: Floats, count_stddev: float, sum_stddev: float) -> None:
        """Move the centres to noisy means, shrunk towards the class as far as noise outweighs the class's width."""
        classes, components, rank = self.centres.shape
        table = counts_and_sums.reshape(classes, components, 1 + rank)
        self._counts = np.maximum(table[..., 0], 1.0)
        significant = np.where(self._counts > _DEVIATIONS * count_stddev, self._counts, 0.0)
        significant = np.where(significant.any(axis=1, keepdims=True), significant, self._counts)
        self._weights = significant / significant.sum(axis=1, keepdims=True)
        width = (self._start.factors**2).sum(axis=(1, 2))[:, None]
        trust = width / (width + rank * (sum_stddev / self._counts) ** 2 + np.finfo(float).tiny)
        means = table[..., 1:] / self._counts[..., None]
        self.centres = trust[..., None] * means + (1 - trust[..., None]) * self._start.means[:, None]

    def estimate_covariances(self, scatter: Floats, noise_stddev: float) -> None:
        """Factor noisy scatter matrices, pooled within the class; directions below the noise level are dropped.

        Args:
            scatter: (classes·K, q, q), noisy Σ r·rᵀ per component.
        """
        classes, components, rank = self.centres.shape
        scatters = scatter.reshape(classes, components, rank, rank)
        within = scatters.sum(axis=1, keepdims=True) / self._counts.sum(axis=1)[:, None, None, None]
        values, vectors = np.linalg.eigh(scatters + self._pooling * within)
        bar = noise_stddev * math.sqrt(rank)
        variances = np.where(values > bar, values, 0.0) / (self._counts + self._pooling)[..., None]
        self._factors = vectors * np.sqrt(variances)[..., None, :]

    def tensors(self, clip_norm: float) -> Tensors:
        """Return the tensors of `draw`, in units of pixels in [0, 1]."""
        parts = {
            "basis": self._start.basis,
            "weights": self._weights,
            "means": self.centres * clip_norm,
            "factors": self._factors * clip_norm,
        }
        return {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}
