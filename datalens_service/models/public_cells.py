"""Cells of a pool: public images that lie next to each other, by what a public encoder says of them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.models.exact_products import ExactMatrix, on_grid

Floats = NDArray[np.float32]

_ROUNDS: Final = 10
# Rows that are compared with all centres at once: 64 MiB of 16,384 of them.
_ROWS: Final = 512


class PublicCells(NamedTuple):
    """Centres of cells (cells, dimensions), means of public features, in a fixed order."""

    centres: Floats

    @classmethod
    def fit(cls, features: Floats, count: int, seed: int) -> PublicCells:
        """Lloyd's k-means; a cell that loses its last image keeps its centre."""
        start = np.random.default_rng(seed).choice(len(features), min(count, len(features)), replace=False)
        cells = cls(features[np.sort(start)])
        for _ in range(_ROUNDS):
            cells = cells._moved(features)
        return cells

    def nearest(self, features: Floats) -> NDArray[np.int64]:
        """(n,) the next centre of each row, the first of equally near ones: a function of the row and the centres."""
        matrix, halves = ExactMatrix(self.centres.T), (self.centres.astype(np.float64) ** 2).sum(axis=1) / 2
        nearest = np.empty(len(features), dtype=np.int64)
        for start in range(0, len(features), _ROWS):
            rows = slice(start, start + _ROWS)
            nearest[rows] = (matrix.products(on_grid(features[rows])) - halves).argmax(axis=1)
        return nearest

    def _moved(self, features: Floats) -> PublicCells:
        members = self.nearest(features)
        sums, counts = np.zeros(self.centres.shape), np.bincount(members, minlength=len(self.centres))
        np.add.at(sums, members, features)
        means = sums / np.maximum(counts, 1)[:, None]
        return PublicCells(np.where(counts[:, None] > 0, means, self.centres).astype(np.float32))
