"""Figures of samples by the features of a small classifier that learned from real images."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_fidelity.metric_isc import KEY_METRIC_ISC_MEAN, isc_features_to_metric
from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

from benchmarks.environment import require_test_split
from benchmarks.fixed_extractor import pixels
from datalens_service.data.dataset import Dataset

Floats = NDArray[np.float32]

_ROWS: Final = 2000
_NEIGHBOURS, _COMPARED = 5, 4000
_KID_SUBSETS, _KID_SUBSET_SIZE = 20, 1000


class Metrics:
    """Compares samples with the real test images of a set of 28×28 grey images.

    Args:
        dataset: With test images.
        extractor: As `train_extractor` returns it.
    """

    def __init__(self, dataset: Dataset, extractor: nn.Sequential) -> None:
        self._network = extractor
        self._reference = self._features(pixels(require_test_split(dataset).images))

    def fidelity(self, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> dict[str, float]:
        """FID, KID and the Inception score of the extractor; in percent agreement with labels, precision and recall."""
        features = self._features(pixels(images))
        scores = self._network[-1](torch.from_numpy(features)).detach()
        precision, recall = precision_recall(features, self._reference)
        return {
            "fid": round(frechet_distance(features, self._reference), 1),
            "kid": round(kernel_distance(features, self._reference), 3),
            "inception_score": round(float(isc_features_to_metric(scores)[KEY_METRIC_ISC_MEAN]), 2),
            "consistent": round(100 * float((scores.argmax(1).numpy() == labels).mean()), 1),
            "precision": precision,
            "recall": recall,
        }

    def _features(self, images: Tensor) -> Floats:
        with torch.no_grad():
            return torch.cat([self._network[:-1](part) for part in images.split(_ROWS)]).numpy()


def frechet_distance(first: Floats, second: Floats) -> float:
    """Between Gaussians fitted to two sets of features."""
    covariances = np.cov(first.T), np.cov(second.T)
    # The trace of the product's square root; samples that hardly differ have a singular covariance.
    roots = np.sqrt(np.linalg.eigvals(covariances[0] @ covariances[1]).real.clip(0))
    apart = first.mean(axis=0) - second.mean(axis=0)
    return float(apart @ apart + np.trace(covariances[0] + covariances[1]) - 2 * roots.sum())


def kernel_distance(first: Floats, second: Floats) -> float:
    """KID: squared maximum mean discrepancy under a cubic kernel (Bińkowski et al. 2018), mean over subsets.

    The kernel is made for numbers around 1: features are divided by the deviation of the second set.
    """
    subsets = {"kid_subsets": _KID_SUBSETS, "kid_subset_size": _KID_SUBSET_SIZE, "verbose": False, "rng_seed": 0}
    both = (torch.from_numpy(rows / second.std()) for rows in (first, second))
    return float(kid_features_to_metric(*both, **subsets)[KEY_METRIC_KID_MEAN])


def precision_recall(samples: Floats, real: Floats) -> tuple[float, float]:
    """Share of samples within the reach of real images, and the reverse (Kynkäänniemi et al. 2019), in percent."""
    rng = np.random.default_rng(0)
    drawn, true = (torch.from_numpy(rows[rng.permutation(len(rows))[:_COMPARED]]) for rows in (samples, real))
    distances = torch.cdist(drawn, true)
    inside = (distances <= _reach(true)[None]).any(1), (distances <= _reach(drawn)[:, None]).any(0)
    precision, recall = (round(100 * float(rows.float().mean()), 1) for rows in inside)
    return precision, recall


def _reach(features: Tensor) -> Tensor:
    """Distance of each row to its fifth neighbour."""
    parts = [torch.cdist(part, features).kthvalue(_NEIGHBOURS + 1, dim=1).values for part in features.split(500)]
    return torch.cat(parts)
