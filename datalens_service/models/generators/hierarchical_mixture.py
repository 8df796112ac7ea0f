"""Several Gaussians per class around released centres, each with a covariance between its own and that of others.

Everything here is post-processing of noisy sums. What all components share is known much better than what one class
adds, and that better than what one component adds: each departs from the level above only as far as its departure
stands out from the noise, as the classes of `hierarchical_gaussian` do.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from datalens_service.models.generators.hierarchical_gaussian import (
    HierarchicalFit,
    factor,
    shrink_departures,
    shrink_eigenvalues,
)
from datalens_service.models.generators.mixture import Centres

Floats = NDArray[np.float64]


class HierarchicalMixture:
    """Collects the noisy releases that follow a Gaussian per class.

    Args:
        start: After its three releases.
        components: K, per class.
        rng: Public; draws the first centres.

    Attributes:
        centres: Of the components, as coordinates in the basis of the start, counted from the means of the classes.
    """

    def __init__(self, start: HierarchicalFit, components: int, rng: np.random.Generator) -> None:
        self._start = start
        classes, rank = len(start.means), start.basis.shape[1]
        self.centres = Centres(np.zeros((classes, rank)), start.factors, components, rng)
        self._factors: Floats = np.zeros((classes * components, rank, rank))

    def estimate_covariances(self, scatters: Floats, noise_stddev: float) -> None:
        """How far components vary around their centres.

        Args:
            scatters: (classes·K, q, q) noisy Σ r·rᵀ of distances from the centres, in the basis of the start.
            noise_stddev: Of one entry.
        """
        components = self.centres.counts.shape[1]
        counts, rank = self.centres.counts.reshape(-1), scatters.shape[-1]
        pooled_stddev = noise_stddev * math.sqrt(len(counts)) / counts.sum()
        values, turn = np.linalg.eigh(scatters.sum(axis=0) / counts.sum())
        variances = shrink_eigenvalues(values[::-1], pooled_stddev * math.sqrt(rank))
        turn = turn[:, ::-1]
        turned = turn.T @ scatters @ turn
        covariances: Floats = np.diag(variances)[None]
        for parts in (components, 1):
            sums = turned.reshape(-1, parts, rank, rank).sum(axis=1)
            records = counts.reshape(-1, parts).sum(axis=1)
            noise = (noise_stddev * math.sqrt(parts) / records) ** 2
            departures = sums / records[:, None, None] - covariances
            kept = covariances + shrink_departures(departures, variances, noise)
            covariances = np.repeat(kept, parts, axis=0)
        self._factors = turn @ factor(covariances)

    def tensors(self) -> dict[str, Floats]:
        """`basis` (d, q), `weights` (classes, K), `means` (classes·K, d) and `factors` (classes·K, q, q)."""
        start, places = self._start, self.centres.places
        means = start.means[:, None] + places @ start.basis.T
        return {
            "basis": start.basis,
            "weights": self.centres.weights,
            "means": means.reshape(-1, means.shape[-1]),
            "factors": self._factors,
        }
