"""Signed distances to the outline of ink, of many planes at once, each a function of its own plane alone.

Distances are decided in whole numbers on a grid three times as fine, up to where they no longer matter: the lower
envelope of parabolas (Felzenszwalb and Huttenlocher 2012, "Distance Transforms of Sampled Functions"), tried one by
one. Planes lie side by side in memory, so that every step is one of a whole row of them.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

Floats = NDArray[np.float64]

SIDE: Final = 28.0
"""Lengths are counted in twenty-eighths of an image's side."""

_FAR: Final = 6.0
"""Farther from the outline than this, distance is no matter."""

_ENLARGEMENT: Final = 3
# Means of three by three differ by less than this from the distances in them.
_BESIDE: Final = 4
# Sums of two squares of more do not fit into 16 bits, and SciPy is no slower.
_LONGEST: Final = 127
# Of planes at once: more do not fit into a core's cache.
_PIXELS: Final = 50_000


def signed_distances(inks: NDArray[np.uint8], level: float) -> Floats:
    """(n, height, width) distances to the outline in pixels, positive inside; at most 6/28 of a side.

    Args:
        inks: Brightness (n, height, width).
        level: Brightness, of 1, of the outline.
    """
    planes = max(1, _PIXELS // math.prod(inks.shape[1:]))
    parts = [_of_planes(inks[row : row + planes], level) for row in range(0, len(inks), planes)]
    return np.concatenate(parts) if parts else np.zeros(inks.shape)


def _of_planes(inks: NDArray[np.uint8], level: float) -> Floats:
    height, width = inks.shape[1:]
    farthest = _FAR * math.sqrt(height * width) / SIDE
    cap = math.ceil(_ENLARGEMENT * farthest) + _BESIDE
    larger = _enlarged(inks.transpose(1, 2, 0)) > math.floor(level * 255 * _ENLARGEMENT**2)
    # Pixel centres lie half a pixel off the outline.
    distances = np.where(larger, _distances(larger, cap) - 0.5, 0.5 - _distances(~larger, cap))
    rows = distances.reshape(height, _ENLARGEMENT, width, _ENLARGEMENT, len(inks))
    # Added one by one: a mean over several axes may depend on how many planes there are.
    sums = sum(rows[:, down, :, right] for down in range(_ENLARGEMENT) for right in range(_ENLARGEMENT))
    means = np.asarray(sums) / _ENLARGEMENT**3
    return np.ascontiguousarray(means.clip(-farthest, farthest).transpose(2, 0, 1))


def _enlarged(inks: NDArray[np.uint8]) -> NDArray[np.int16]:
    """Nine times the brightness at three times as many rows and columns, linear between pixel centres."""
    planes = inks.astype(np.int16)
    for axis in (0, 1):
        size = planes.shape[axis]
        before, after = (planes.take(np.arange(size) + step, axis, mode="clip") for step in (-1, 1))
        thirds = np.stack([2 * planes + before, 3 * planes, 2 * planes + after], axis=axis + 1)
        planes = thirds.reshape(*planes.shape[:axis], _ENLARGEMENT * size, *planes.shape[axis + 1 :])
    return planes


def _distances(inside: NDArray[np.bool_], cap: int) -> Floats:
    """Distances (height, width, n) to the nearest pixel that is not inside, at most `cap`."""
    if cap > _LONGEST:
        planes = [_distances_by_scipy(inside[..., number], cap) for number in range(inside.shape[2])]
        return np.stack(planes, axis=2)
    squares = np.square(_along_columns(inside, cap))
    nearest, shifted = squares.copy(), np.empty_like(squares)
    for step in range(1, min(cap, inside.shape[1])):
        np.add(squares, np.int16(step**2), out=shifted)
        np.minimum(nearest[:, :-step], shifted[:, step:], out=nearest[:, :-step])
        np.minimum(nearest[:, step:], shifted[:, :-step], out=nearest[:, step:])
    return np.sqrt(nearest.astype(np.float64))


def _along_columns(inside: NDArray[np.bool_], cap: int) -> NDArray[np.int16]:
    """Distances within a column, at most `cap`."""
    steps = np.where(inside, np.int16(cap), np.int16(0))
    for row in range(1, len(steps)):
        np.minimum(steps[row], steps[row - 1] + np.int16(1), out=steps[row])
    for row in reversed(range(len(steps) - 1)):
        np.minimum(steps[row], steps[row + 1] + np.int16(1), out=steps[row])
    return steps


def _distances_by_scipy(inside: NDArray[np.bool_], cap: int) -> Floats:
    if inside.all():
        return np.full(inside.shape, float(cap))
    return np.asarray(np.minimum(distance_transform_edt(inside), cap))
