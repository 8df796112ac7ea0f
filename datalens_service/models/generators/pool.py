"""Public images: only which of them represents which class is learnt from private records.

An image of a class is drawn in proportion to its weight in that class, and it has a soft label: how likely it is of
every class. Cells of a pool are images that are near each other in the features of a public encoder.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats32
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.models.exact_products import ExactMatrix, on_grid

Tensors = dict[str, NDArray[Any]]

_WHITE: Final = np.float32(255)


def pack(images: Images, weights: Floats32, soft_labels: Floats32) -> Tensors:
    """Join the tensors of a model; images that represent no class are left out.

    Args:
        images: uint8 (n, height, width, channels).
        weights: (n, classes), at least 0, with an image for every class.
        soft_labels: (n, classes), rows that add up to 1.
    """
    used = weights.sum(axis=1) > 0
    shares = {"weights": weights, "soft_labels": soft_labels}
    kept = {name: value[used].astype(np.float32) for name, value in shares.items()}
    return {"images": np.ascontiguousarray(images[used]), **kept}


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw images (n, d) in [0, 1] of the classes asked for."""
    images = tensors["images"][choose(tensors, labels, rng)]
    return np.asarray(images.transpose(0, 3, 1, 2).reshape(len(labels), -1) / _WHITE, dtype=np.float32)


def draw_soft_labels(tensors: Tensors, labels: Labels, rng: np.random.Generator) -> Floats32:
    """Return soft labels (n, classes) of the images that `draw` returns for the same labels and `rng`."""
    return np.asarray(tensors["soft_labels"][choose(tensors, labels, rng)])


def choose(tensors: Tensors, labels: Labels, rng: np.random.Generator) -> NDArray[np.int64]:
    """Choose rows (n,) of images in proportion to their weights in the classes asked for."""
    rows = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        requests = np.flatnonzero(labels == label)
        rows[requests] = _spread(tensors["weights"][:, label].astype(np.float64), len(requests), rng)
    return rows


def _spread(weights: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Choose rows at equal distances along all weights: none comes twice whose share is below one in `count`."""
    order = rng.permutation(len(weights))
    ends = np.cumsum(weights[order])
    places = (np.arange(count) + rng.random()) / count * ends[-1]
    return np.asarray(rng.permutation(order[np.searchsorted(ends, places, side="right").clip(max=len(order) - 1)]))


_ROUNDS: Final = 10
# Rows that are compared with all centres at once: 64 MiB of 16,384 of them.
_ROWS: Final = 512


class PublicCells(NamedTuple):
    """Centres of cells (cells, dimensions), means of public features, in a fixed order."""

    centres: Floats32

    @classmethod
    def fit(cls, features: Floats32, count: int, seed: int) -> PublicCells:
        """Fit centres by Lloyd's k-means; a cell that loses its last image keeps its centre."""
        start = np.random.default_rng(seed).choice(len(features), min(count, len(features)), replace=False)
        cells = cls(features[np.sort(start)])
        for _ in range(_ROUNDS):
            cells = cells._moved(features)
        return cells

    def nearest(self, features: Floats32) -> NDArray[np.int64]:
        """Return the nearest centre of each row (n,), the first of equally near ones."""
        matrix, halves = ExactMatrix(self.centres.T), (self.centres.astype(np.float64) ** 2).sum(axis=1) / 2
        nearest = np.empty(len(features), dtype=np.int64)
        for start in range(0, len(features), _ROWS):
            rows = slice(start, start + _ROWS)
            nearest[rows] = (matrix.products(on_grid(features[rows])) - halves).argmax(axis=1)
        return nearest

    def _moved(self, features: Floats32) -> PublicCells:
        members = self.nearest(features)
        sums, counts = np.zeros(self.centres.shape), np.bincount(members, minlength=len(self.centres))
        np.add.at(sums, members, features)
        means = sums / np.maximum(counts, 1)[:, None]
        return PublicCells(np.where(counts[:, None] > 0, means, self.centres).astype(np.float32))
