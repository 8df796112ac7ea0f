"""Products of private rows and released matrices in which no row depends on how many others there are.

A library for linear algebra adds in an order that depends on the number of rows, so the last bit of a row may depend on
other records. Sums of integers below 2^53 are exact in float64: in any order they give the same bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEFT_STEPS, _RIGHT_STEPS = 2.0**24, 2.0**28
"""Per unit length. Partial sums are at most 2^52·(1 + 2^-15) by Cauchy and Schwarz, for rows of up to 2^18 numbers."""

# So that a matrix of zeros can be divided by its length.
_SHORTEST: Final = 1e-200

# Few enough that a block stays in the processor's cache.
_ROWS: Final = 512


def exact_products(vectors: NDArray[Any], matrix: NDArray[Any], longest: float = 1.0) -> Floats:
    """Every vector times a matrix; a row of the result is a function of its own vector and of the matrix.

    Args:
        vectors: (n, d), private. Those longer than `longest` are scaled back to it; all are rounded to 2^-24 of it.
        matrix: (d, q), released; rounded to 2^-28 of its longest column.
        longest: Public, in the units of the vectors.

    Returns:
        (n, q).
    """
    length = max(float(np.linalg.norm(matrix.astype(np.float64), axis=0).max()), _SHORTEST)
    whole = np.rint(matrix.astype(np.float64) * (_RIGHT_STEPS / length))
    products = np.empty((len(vectors), matrix.shape[1]))
    for start in range(0, len(vectors), _ROWS):
        rows = slice(start, start + _ROWS)
        np.matmul(_on_grid(vectors[rows].astype(np.float64) / longest), whole, out=products[rows])
    products *= longest * length / (_LEFT_STEPS * _RIGHT_STEPS)
    return products


def _on_grid(vectors: Floats) -> Floats:
    """Rows of at most unit length as whole numbers of steps."""
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    whole: Floats = np.rint(vectors * (_LEFT_STEPS / np.maximum(lengths, 1.0))[:, None])
    return whole
