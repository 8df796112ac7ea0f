"""Figures of trials: by a small classifier trained on the real training images, and by one trained on samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch_fidelity.metric_isc import KEY_METRIC_ISC_MEAN, isc_features_to_metric
from torch_fidelity.metric_kid import KEY_METRIC_KID_MEAN, kid_features_to_metric

from datalens_service.data.dataset import Dataset, Split

Floats = NDArray[np.float32]

_SEED: Final = 123
_BATCH, _ROWS = 256, 2000
_NEIGHBOURS, _COMPARED = 5, 4000
_KID_SUBSETS, _KID_SUBSET_SIZE = 20, 1000
_SIDE_OF_GRID = 10


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """(n, channels, height, width) in [0, 1]."""
    return torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32) / 255)


class Metrics:
    """Compares samples with the real test images of a set of 28×28 grey images.

    The classifier of the samples has the same layers as the extractor.

    Args:
        dataset: With test images.
        extractor: As `train_extractor` returns it.
    """

    def __init__(self, dataset: Dataset, extractor: nn.Sequential) -> None:
        self._test = _held_out(dataset)
        self._real = pixels(self._test.images)
        self._network = extractor
        self._reference = self._features(self._real)

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

    def of(self, images: NDArray[np.uint8], labels: NDArray[np.int64], epochs: int = 4) -> dict[str, Any]:
        """What `fidelity` says, and accuracy in percent."""
        samples = pixels(images)
        learnt = _fit(samples, torch.from_numpy(labels), epochs, 64, 0)
        with torch.no_grad():
            right = torch.cat([learnt(part).argmax(1) for part in self._real.split(_ROWS)]).numpy() == self._test.labels
        return {
            **self.fidelity(images, labels),
            "accuracy": round(100 * float(right.mean()), 1),
            "images": len(images),
            "epochs": epochs,
        }

    def _features(self, images: Tensor) -> Floats:
        with torch.no_grad():
            return torch.cat([self._network[:-1](part) for part in images.split(_ROWS)]).numpy()


def train_extractor(dataset: Dataset) -> nn.Sequential:
    """A small convolutional classifier, four epochs on real training images; its last hidden layer has 128 numbers."""
    train = dataset.train
    return _fit(pixels(train.images), torch.from_numpy(train.labels), 4, _BATCH, _SEED)


def build_network() -> nn.Sequential:
    """The layers of the extractor."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


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


def save_grid(images: NDArray[np.uint8], path: Path) -> None:
    """The first hundred images, ten in a row, three times as large."""
    rows = images[: _SIDE_OF_GRID**2, ..., 0].reshape(_SIDE_OF_GRID, _SIDE_OF_GRID, *images.shape[1:3])
    sheet = rows.transpose(1, 2, 0, 3).reshape(_SIDE_OF_GRID * images.shape[1], -1)
    size = (3 * sheet.shape[1], 3 * sheet.shape[0])
    Image.fromarray(sheet).resize(size, Image.Resampling.NEAREST).save(path)


def _held_out(dataset: Dataset) -> Split:
    if dataset.test is None:
        raise SystemExit("The trials need a set with test images.")
    return dataset.test


def _reach(features: Tensor) -> Tensor:
    """Distance of each row to its fifth neighbour."""
    parts = [torch.cdist(part, features).kthvalue(_NEIGHBOURS + 1, dim=1).values for part in features.split(500)]
    return torch.cat(parts)


def _fit(images: Tensor, labels: Tensor, epochs: int, batch: int, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    network = build_network()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(batch):
            loss = functional.cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network
