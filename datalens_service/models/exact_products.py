"""Products of private rows and released matrices in which no row depends on how many others there are.

A library for linear algebra adds in an order that depends on the number of rows, so the last bit of a row may depend on
other records. Sums of integers below 2^53 are exact in float64: in any order they give the same bits.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats

_ROW_STEPS, _COLUMN_STEPS = 2.0**24, 2.0**28
"""Steps per unit length: partial sums of rows of up to 2^18 numbers are at most 2^52·(1 + 2^-15) (Cauchy, Schwarz)."""

# So that a matrix of zeros can be divided by its length.
_SHORTEST: Final = 1e-200
# Few enough that a block stays in the processor's cache.
_ROWS: Final = 512


def on_grid(vectors: NDArray[Any], longest: float = 1.0) -> NDArray[Any]:
    """Round private vectors to the grid of `exact_products`; each result is a function of its own vector.

    Args:
        vectors: (n, d), float32 or float64. Those longer than the bound are scaled back to it.
        longest: Public; the bound is the next power of two.

    Returns:
        (n, d) of the same type: multiples of 2^-24 of the bound, which also float32 holds exactly.
    """
    bound = 2.0 ** math.ceil(math.log2(longest))
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    rounded: NDArray[Any] = vectors * (_ROW_STEPS / np.maximum(lengths, bound)).astype(vectors.dtype)[:, None]
    np.rint(rounded, out=rounded)
    rounded *= vectors.dtype.type(bound / _ROW_STEPS)
    return rounded


def exact_products(vectors: NDArray[Any], matrix: NDArray[Any]) -> Floats:
    """Multiply vectors by a matrix, (n, q); a row of the result is a function of its own vector and of the matrix.

    Args:
        vectors: (n, d), private, from `on_grid`.
        matrix: (d, q), released; rounded to 2^-28 of its longest column.
    """
    return ExactMatrix(matrix).products(vectors)


class ExactMatrix:
    """A released matrix (d, q) that is rounded once, for `exact_products` of many blocks of vectors."""

    def __init__(self, matrix: NDArray[Any]) -> None:
        length = max(float(np.linalg.norm(matrix.astype(np.float64), axis=0).max()), _SHORTEST)
        self._whole = np.rint(matrix.astype(np.float64) * (_COLUMN_STEPS / length))
        self._step = length / _COLUMN_STEPS

    def products(self, vectors: NDArray[Any]) -> Floats:
        products = np.empty((len(vectors), self._whole.shape[1]))
        for start in range(0, len(vectors), _ROWS):
            rows = slice(start, start + _ROWS)
            np.matmul(vectors[rows].astype(np.float64, copy=False), self._whole, out=products[rows])
        products *= self._step
        return products
