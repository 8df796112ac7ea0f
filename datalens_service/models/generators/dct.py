"""Low-frequency cosine basis: a small, data-independent space of smooth images.

Two-dimensional DCT-II, orthonormal, frequencies in the zig-zag order of JPEG (ITU-T T.81, annex A.3.6).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidSpec
from datalens_service.models.exact_products import ExactMatrix


def dct_basis(schema: Schema, count: int) -> NDArray[np.float32]:
    """The `count` lowest frequencies, all channels of a frequency before the next one.

    Args:
        schema: Of the images.
        count: Columns, from 1 to the numbers of an image.

    Returns:
        float32 (d, count) with orthonormal columns; rows in channel, height, width order.

    Raises:
        InvalidSpec: `count` is outside that range.
    """
    if not 1 <= count <= schema.dimensions:
        raise InvalidSpec(f"A cosine basis of these images has 1 to {schema.dimensions} columns.")
    frequencies = _zigzag(schema.height, schema.width)[: -(-count // schema.channels)]
    rows, columns = frequencies[:, 0], frequencies[:, 1]
    vertical, horizontal = _cosines(schema.height), _cosines(schema.width)
    planes = np.einsum("ky,kx->kyx", vertical[rows], horizontal[columns])
    basis = np.einsum("kyx,ce->cyxke", planes, np.eye(schema.channels))
    return np.asarray(basis.reshape(schema.dimensions, -1)[:, :count], dtype=np.float32)


class LowFrequencies:
    """Images in the columns of `dct_basis`, one channel at a time: the basis of all channels is mostly zeros.

    Args:
        schema: Of the images.
        count: Columns, from 1 to the numbers of an image.

    Raises:
        InvalidSpec: `count` is outside that range.
    """

    def __init__(self, schema: Schema, count: int) -> None:
        channel = schema.model_copy(update={"channels": 1})
        self._planes = dct_basis(channel, -(-count // schema.channels))
        self._exact = ExactMatrix(self._planes)
        self._channels, self._count = schema.channels, count

    def coordinates(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Private vectors (n, d) on the grid as (n, count); each row is a function of its own vector."""
        coordinates = np.empty((len(vectors), self._count))
        for channel, values in enumerate(np.split(vectors, self._channels, axis=1)):
            columns = coordinates[:, channel :: self._channels]
            columns[:] = self._exact.products(values)[:, : columns.shape[1]]
        return coordinates

    def lift(self, basis: NDArray[np.float32]) -> NDArray[np.float32]:
        """Released directions (count, q) as directions of whole images (d, q)."""
        parts = [basis[channel :: self._channels] for channel in range(self._channels)]
        return np.concatenate([self._planes[:, : len(part)] @ part for part in parts])


def _cosines(size: int) -> NDArray[np.float64]:
    """(frequencies, positions): the orthonormal DCT-II matrix."""
    frequency, position = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    scale = np.where(frequency == 0, np.sqrt(1 / size), np.sqrt(2 / size))
    return np.asarray(scale * np.cos(np.pi * (2 * position + 1) * frequency / (2 * size)))


def _zigzag(height: int, width: int) -> NDArray[np.int64]:
    """(height·width, 2) pairs (vertical, horizontal) by diagonal, its direction alternating."""
    vertical, horizontal = (axis.ravel() for axis in np.indices((height, width)))
    diagonal = vertical + horizontal
    along = np.where(diagonal % 2 == 1, vertical, horizontal)
    return np.stack([vertical, horizontal], axis=1)[np.lexsort((along, diagonal))]
