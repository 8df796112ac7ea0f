"""A Gaussian per class whose covariance lies between that of its class and one that all classes share.

Everything here is post-processing of noisy sums. What all classes share is known ten times better than what one class
adds, so a class departs from it only as far as its departure stands out from the noise (empirical Bayes).
"""

import math
from typing import Final

import numpy as np

from datalens_service.base.arrays import Floats

_TINY: Final = np.finfo(float).tiny


class HierarchicalFit:
    """Collects three noisy releases; lengths are those of the vectors.

    Attributes:
        means: (classes, d), after `estimate_means`.
        basis: (d, q) orthonormal columns, after `estimate_shared`.
        factors: (classes, q, q) with factor·factorᵀ the covariance in the basis, after `estimate_classes`.
    """

    def __init__(self) -> None:
        self.means: Floats = np.empty((0, 0))
        self.basis: Floats = np.empty((0, 0))
        self.factors: Floats = np.empty((0, 0, 0))
        self._counts: Floats = np.empty(0)
        self._variances: Floats = np.empty(0)

    def estimate_means(self, counts: Floats, sums: Floats, sum_stddev: float) -> None:
        """Divide noisy sums by noisy counts, and pull each coordinate towards that of all classes.

        Args:
            counts: (classes,); a class that looks empty counts as one record.
            sums: (classes, d).
        """
        self._counts = np.maximum(counts, 1.0)
        means = sums / self._counts[:, None]
        noise = np.mean((sum_stddev / self._counts) ** 2)
        middle = sums.sum(axis=0) / self._counts.sum()
        apart = means - middle
        signal = np.maximum((apart**2).mean(axis=0) - noise, 0.0)
        self.means = middle + apart * (signal / (signal + noise + _TINY)) if len(counts) > 1 else means

    def estimate_shared(self, scatter: Floats, noise_stddev: float, rank: int) -> None:
        """Estimate the directions and variances that all classes share, `rank` at most.

        Args:
            scatter: (d, d) noisy Σ r·rᵀ around class means.
        """
        records = self._counts.sum()
        values, vectors = np.linalg.eigh(scatter / records)
        self.basis = vectors[:, ::-1][:, :rank]
        edge = noise_stddev / records * math.sqrt(len(scatter))
        self._variances = shrink_eigenvalues(values[::-1][:rank], edge)

    def estimate_classes(self, scatters: Floats, noise_stddev: float) -> None:
        """Estimate how far the covariance of each class departs from the shared one.

        Args:
            scatters: (classes, q, q) noisy Σ r·rᵀ in the basis.
        """
        shared = np.diag(self._variances)
        departures = scatters / self._counts[:, None, None] - shared
        noise = float(np.mean((noise_stddev / self._counts) ** 2))
        trust = _trust(departures, self._variances, noise)
        values, vectors = np.linalg.eigh(shared + trust * departures)
        self.factors = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]


def shrink_eigenvalues(values: Floats, edge: float) -> Floats:
    """Return eigenvalues of a symmetric matrix as they were before noise, 0 where noise drowns them.

    Noise of spectral half-width 2·edge turns an eigenvalue l into l + edge²/l (Benaych-Georges, Nadakuditi 2011), and
    its direction keeps 1 − (edge/l)² of it.
    """
    before = np.zeros_like(values)
    visible = values > 2 * edge
    seen = values[visible]
    before[visible] = (seen + np.sqrt(seen**2 - 4 * edge**2)) / 2
    before[visible] -= edge**2 / before[visible]
    return before


def _trust(departures: Floats, variances: Floats, noise: float) -> Floats:
    """Return weights (q, q) in [0, 1]: the share of departures that is no noise, averaged over entries of like size.

    An entry (i, j) is expected to depart by about √(vᵢ·vⱼ), so entries are averaged by octaves of that. Directions
    without variance have no departures.
    """
    scale = np.sqrt(np.outer(variances, variances))
    octaves = np.floor(np.log2(np.maximum(scale, _TINY)))
    diagonal = np.eye(len(variances), dtype=bool)
    trust = np.zeros_like(scale)
    for part in (diagonal, ~diagonal):
        for octave in np.unique(octaves[part & (scale > 0)]):
            entries = part & (scale > 0) & (octaves == octave)
            signal = max(float((departures[:, entries] ** 2).mean()) - noise, 0.0)
            trust[entries] = signal / (signal + noise + _TINY)
    return trust
