"""Class means around a pooled one, with one covariance for all classes, fitted to three noisy sums.

Everything here is post-processing. The plan determines the noise, so its strength is known: values that do not stand
out from it are shrunk or dropped instead of shown.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats

_BAND: Final = 8
"""Neighbouring frequencies whose strength is estimated together, over all classes."""
_BAND_OF_ONE: Final = 24
"""The same for a single vector."""
_CLEARLY: Final = 1.1
"""Factor above the edge of the noise; more than two fifths of a direction with a lower eigenvalue are noise."""
# Chosen on MNIST, Fashion-MNIST, hands, blood cells and drawn scenes at ε = 1 (docs/findings.md).
_EVENLY: Final = 2 / 3
"""Share of the covariance that the discriminant takes as alike in all directions."""
_SHORTEST: Final = 1e-200
"""A floor for lengths, so that nothing is divided by 0."""
_LEAST_VARIANCE: Final = 1e-12
"""A floor for the variance of a frequency, in squares of the clipping norm."""


class PooledGaussianFit:
    """Collects the releases; coordinates are cosine frequencies, the lowest first, in units of the clipping norm.

    Args:
        residual_norm: Length that the vectors of the second and third release call 1.

    Attributes:
        center: (d,) mean of all records, after `estimate_center`.
        offsets: (classes, d) class means less `center`, after `estimate_offsets`.
        factor: (d, directions) with factor·factorᵀ the part of the covariance within classes that stands out, after
            `estimate_covariance`.
        rest: Variance of a frequency beside it, on average over those that have a covariance.
        shares: Shares of the classes by their released counts; None where they look about as frequent.
    """

    def __init__(self, residual_norm: float) -> None:
        self._residual_norm = residual_norm
        self._records = 1.0
        self.center: Floats = np.empty(0)
        self.offsets: Floats = np.empty((0, 0))
        self.factor: Floats = np.empty((0, 0))
        self.rest = 0.0
        self.shares: tuple[float, ...] | None = None
        self._even = _LEAST_VARIANCE

    def estimate_center(self, count_and_sum: Floats, sum_stddev: float) -> None:
        """Divide the noisy sum (1 + d,) of all records by their noisy number, and shrink the quotient."""
        self._records = max(count_and_sum[0], 1.0)
        variance = np.array([(sum_stddev / self._records) ** 2])
        self.center = shrink_rows(count_and_sum[None, 1:] / self._records, variance)[0]

    def estimate_offsets(self, counts_and_sums: Floats, count_stddev: float, sum_stddev: float) -> None:
        """Divide noisy sums (classes, 1 + d) by noisy counts, and shrink the quotients by what is known of the noise.

        Args:
            counts_and_sums: Sums of the residuals to `center`, per class.
            count_stddev: Noise of a count. A class that looks smaller than it counts as being as large.
        """
        counts = np.maximum(counts_and_sums[:, 0], max(count_stddev, 1.0))
        quotients = counts_and_sums[:, 1:] / counts[:, None]
        self.offsets = self._residual_norm * shrink_bands(quotients, (sum_stddev / counts) ** 2, _BAND)

    def estimate_covariance(self, scatter: Floats, noise_stddev: float, places: NDArray[np.int64]) -> None:
        """Keep the directions of a noisy Σ r·rᵀ (k, k) that stand out from its noise, and the variance beside them.

        In a spiked matrix an eigenvalue λ comes out of the noise as λ + (edge/2)²/λ, and (edge/2λ)² of the squared
        length of its eigenvector is noise (Benaych-Georges and Nadakuditi, 2011), as loud in one frequency as in
        another. Images are not: bands of an eigenvector that do not stand out are shrunk.

        Args:
            scatter: Noisy Σ r·rᵀ of the residuals to `center` and `offsets`.
            noise_stddev: Noise of one entry; eigenvalues of such noise reach 2·stddev·√k.
            places: (k,) places of its coordinates among all d.
        """
        values, vectors = np.linalg.eigh(scatter)
        edge = 2 * noise_stddev * math.sqrt(len(scatter))
        kept = values > _CLEARLY * edge
        values = (values[kept] + np.sqrt(values[kept] ** 2 - edge**2)) / 2
        directions = shrink_rows(vectors[:, kept].T, (edge / 2 / values) ** 2 / len(scatter))
        directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), _SHORTEST)
        self.factor = np.zeros((len(self.center), len(values)))
        self.factor[places] = self._residual_norm * directions.T * np.sqrt(values / self._records)
        variance = self._residual_norm**2 * np.trace(scatter) / self._records
        self.rest = max(0.0, float(variance - np.square(self.factor).sum())) / len(scatter)
        self._even = max(self.rest + float(np.square(self.factor).sum()) / len(scatter), _LEAST_VARIANCE)

    def tensors(self, clip_norm: float, texture: float = 0.0) -> dict[str, NDArray[np.float32]]:
        """Return the tensors of `gaussian.draw`, in units of pixels in [0, 1]; all classes share one factor.

        Args:
            texture: Share of the mean variance that is drawn in every frequency; with 0 there are no `deviations`.
        """
        means, size = self.center + self.offsets, len(self.center)
        weights, biases = self._discriminant(means)
        parts = {
            "basis": np.eye(size),
            "means": means * clip_norm,
            "factors": self.factor[None] * clip_norm,
            "weights": weights / clip_norm,
            "biases": biases,
        }
        if texture > 0:
            parts["deviations"] = np.full(size, math.sqrt(texture * self._even) * clip_norm)
        return {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}

    def _discriminant(self, means: Floats) -> tuple[Floats, Floats]:
        """Return weights (classes, d) and biases (classes,) of the linear discriminant of the released moments.

        Noise of the means counts most in directions in which images hardly vary. So the covariance is shrunk towards
        one that is alike in all directions (Friedman 1989, "Regularized discriminant analysis").
        """
        size = len(self.center)
        covariance = (1 - _EVENLY) * (self.factor @ self.factor.T + self.rest * np.eye(size))
        even = _EVENLY * self._even * np.eye(size)
        weights: Floats = np.asarray(np.linalg.solve(covariance + even, means.T).T, dtype=np.float64)
        biases: Floats = -(weights * means).sum(axis=1) / 2
        return weights, biases


def shrink_bands(values: Floats, variances: Floats, band: int) -> Floats:
    """Shrink noisy vectors towards 0, band by band: the linear empirical Bayes estimate (Efron and Morris, 1973).

    Args:
        values: (n, d), each the sum of a vector and noise.
        variances: (n,) variances of the noise of one coordinate.
        band: Coordinates whose strength is estimated together.

    Returns:
        (n, d); a band whose strength does not stand out from the noise is 0.
    """
    shrunk = np.empty_like(values)
    for start in range(0, values.shape[1], band):
        part = values[:, start : start + band]
        strength = estimate_strength((part**2).mean(axis=1), np.maximum(variances, _SHORTEST))
        shrunk[:, start : start + band] = part * (strength / (strength + np.maximum(variances, _SHORTEST)))[:, None]
    return shrunk


def estimate_strength(squares: Floats, variances: Floats) -> float:
    """Return the variance of the values in which noise of `variances` (n,) leaves mean squares (n,), at least 0.

    Each vector counts by its square over what is expected of it (Paule and Mandel 1982, "Consensus values and weighting
    factors"). By its precision, the mean of a large class, which lies next to the mean of all, would take those of
    small classes for noise; alike, the mean of an empty class would decide.
    """
    from scipy.optimize import brentq

    def exceed(strength: float) -> float:
        return float((squares / (strength + variances)).sum()) - len(squares)

    return 0.0 if exceed(0.0) <= 0 else float(brentq(exceed, 0.0, float(squares.max())))


def shrink_rows(values: Floats, variances: Floats) -> Floats:
    """Shrink as `shrink_bands`, each row by its own strength."""
    rows = [shrink_bands(row[None], noise[None], _BAND_OF_ONE) for row, noise in zip(values, variances, strict=True)]
    return np.concatenate([np.empty((0, values.shape[1])), *rows])
