"""Low-frequency cosine basis: a small, data-independent space of smooth images.

Two-dimensional DCT-II, orthonormal, frequencies in the zig-zag order of JPEG (ITU-T T.81, annex A.3.6).
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.models.exact_products import ExactMatrix

_COLOURS: Final = 3
_OPPONENT: Final = np.array([[1, 1, 1], [1, 0, -1], [1, -2, 1]]) / np.sqrt([[3], [2], [6]])
"""Luma and two chroma of red, green and blue, orthonormal."""


def dct_basis(schema: Schema, count: int) -> NDArray[np.float32]:
    """Return the `count` lowest frequencies, float32 (d, count), orthonormal; all channels of one before the next one.

    Args:
        count: Columns, from 1 to the numbers of an image.

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
    """The lowest frequencies of images: of colour images those of luma and, at half the resolution, of two chroma.

    Luma and chroma are orthonormal mixtures of red, green and blue, so lengths stay as they are. Eyes resolve luma
    better than chroma, and so does JPEG (ITU-T T.81 and T.871). Coordinates are those of one plane after the other,
    the lowest frequency first.

    Args:
        count: Coordinates, from 1 to the numbers of an image.
    """

    def __init__(self, schema: Schema, count: int) -> None:
        channel = schema.model_copy(update={"channels": 1})
        self.counts = count_planes(schema, count)
        self._basis = dct_basis(channel, max(self.counts))
        self._exact = ExactMatrix(self._basis)
        self._mixtures = _OPPONENT if schema.channels == _COLOURS else np.eye(schema.channels)

    def coordinates(self, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn private vectors (n, d) on the grid into coordinates (n, count), each row from its own vector."""
        channels = [self._exact.products(part) for part in np.split(vectors, len(self.counts), axis=1)]
        coordinates = np.zeros((len(vectors), sum(self.counts)))
        planes = np.split(coordinates, np.cumsum(self.counts)[:-1], axis=1)
        for plane, weights in zip(planes, self._mixtures, strict=True):
            for weight, values in zip(weights, channels, strict=True):
                plane += weight * values[:, : plane.shape[1]]
        return coordinates

    def lift(self, basis: NDArray[np.float32]) -> NDArray[np.float32]:
        """Turn released directions (count, q) into directions of whole images (d, q)."""
        parts = np.split(basis, np.cumsum(self.counts)[:-1])
        planes = np.stack([self._basis[:, : len(part)] @ part for part in parts])
        channels = np.einsum("pc,pdq->cdq", self._mixtures, planes)
        return np.asarray(channels.reshape(-1, basis.shape[1]), dtype=np.float32)


def count_planes(schema: Schema, count: int) -> tuple[int, ...]:
    """Distribute `count` coordinates to planes: a chroma plane has a quarter of luma's, until luma has all."""
    largest, others = schema.height * schema.width, schema.channels - 1
    share = count * 2 / 3 if schema.channels == _COLOURS else count / schema.channels
    first = max(min(largest, math.ceil(share)), count - largest * others)
    return first, *((count - first + plane) // others for plane in reversed(range(others)))


def lowest_of(schema: Schema, count: int, fewer: int) -> NDArray[np.int64]:
    """Return the places, among `count` coordinates, of the `fewer` lowest frequencies."""
    kept, starts = count_planes(schema, fewer), np.cumsum((0, *count_planes(schema, count)))
    return np.concatenate([np.arange(start, start + size) for start, size in zip(starts, kept, strict=False)])


def _cosines(size: int) -> NDArray[np.float64]:
    """Return the orthonormal DCT-II matrix (frequencies, positions)."""
    frequency, position = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    scale = np.where(frequency == 0, np.sqrt(1 / size), np.sqrt(2 / size))
    return np.asarray(scale * np.cos(np.pi * (2 * position + 1) * frequency / (2 * size)))


def _zigzag(height: int, width: int) -> NDArray[np.int64]:
    """Return pairs (vertical, horizontal) by diagonal, its direction alternating, (height·width, 2)."""
    vertical, horizontal = (axis.ravel() for axis in np.indices((height, width)))
    diagonal = vertical + horizontal
    along = np.where(diagonal % 2 == 1, vertical, horizontal)
    return np.stack([vertical, horizontal], axis=1)[np.lexsort((along, diagonal))]
