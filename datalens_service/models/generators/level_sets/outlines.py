"""Geometry of ink: signed distances to its outline, and its pose; each a function of its own image alone.

Distances are decided in whole numbers on a grid three times as fine, up to where they no longer matter: the lower
envelope of parabolas (Felzenszwalb and Huttenlocher 2012, "Distance Transforms of Sampled Functions"), tried one by
one. Planes lie side by side in memory, so that every step is one of a whole row of them.

A pose is the place of ink, its width and height, and its lean; drawings are moved to a common one. Sums over
pixels are sums of integers, so they are exact.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform, distance_transform_edt

from datalens_service.base.arrays import Floats

SIDE: Final = 28.0
"""Lengths are counted in twenty-eighths of an image's side."""

_FAR: Final = 6.0
"""Distances are cut off here: farther from the outline they do not matter."""

_ENLARGEMENT: Final = 3
# Means of three by three differ by less than this from the distances in them.
_BESIDE: Final = 4
# Sums of two squares of more do not fit into 16 bits, and SciPy is no slower.
_LONGEST: Final = 127
# Pixels of planes at once: more do not fit into a core's cache.
_PIXELS: Final = 50_000


def signed_distances(inks: NDArray[np.uint8], level: float) -> Floats:
    """Return distances (n, height, width) to the outline in pixels, positive inside; at most 6/28 of a side.

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
    """Return nine times the brightness at three times as many rows and columns, linear between pixel centres."""
    planes = inks.astype(np.int16)
    for axis in (0, 1):
        size = planes.shape[axis]
        before, after = (planes.take(np.arange(size) + step, axis, mode="clip") for step in (-1, 1))
        thirds = np.stack([2 * planes + before, 3 * planes, 2 * planes + after], axis=axis + 1)
        planes = thirds.reshape(*planes.shape[:axis], _ENLARGEMENT * size, *planes.shape[axis + 1 :])
    return planes


def _distances(inside: NDArray[np.bool_], cap: int) -> Floats:
    """Return distances (height, width, n) to the nearest pixel that is not inside, at most `cap`."""
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
    """Return distances within a column, at most `cap`."""
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


POSE_NUMBERS: Final = 5

# Shares of a side. A common drawing is so wide and so high, as standard deviations of its ink.
_WIDTH, _HEIGHT = 0.15, 0.2
_LOWEST = np.array([-1 / 7, -1 / 7, -0.8, math.log(0.085 / _WIDTH), math.log(0.125 / _HEIGHT)])
_HIGHEST = np.array([1 / 7, 1 / 7, 0.8, math.log(0.215 / _WIDTH), math.log(0.285 / _HEIGHT)])
_USUAL = np.array([0.0, 0.0, 0.1, 0.0, 0.0])
# One unit of each number moves about as much of a drawing as one unit of its field.
_WEIGHTS = np.array([84.0, 84.0, 20.0, 20.0, 20.0])
_LEAST_VARIANCE = 1e-6


def measure_pose(ink: NDArray[np.uint8]) -> Floats:
    """Measure (5,) centre right and down, lean, log of width, log of height, of one plane (height, width).

    The lean is in pixels right for each one down, everything else in shares of a side.

    A plane without ink has the pose of a common drawing.
    """
    mass, down, right = _coordinates(ink)
    total = int(mass.sum())
    if total == 0:
        return np.zeros(POSE_NUMBERS)
    centre_x, centre_y = (int((mass * axis).sum()) / total for axis in (right, down))
    pairs = (right, right), (down, down), (right, down)
    moments = [int((mass * first * second).sum()) / total for first, second in pairs]
    tall = max(moments[1] - centre_y**2, _LEAST_VARIANCE)
    shared = moments[2] - centre_x * centre_y
    # Coordinates are odd numbers of half pixels.
    rows, columns = 2 * ink.shape[0], 2 * ink.shape[1]
    lean = min(max(shared / tall, _LOWEST[2]), _HIGHEST[2])
    wide = max(moments[0] - centre_x**2 - lean * shared, _LEAST_VARIANCE)
    widths = math.log(math.sqrt(wide) / columns / _WIDTH), math.log(math.sqrt(tall) / rows / _HEIGHT)
    return np.array([centre_x / columns, centre_y / rows, lean, *widths]).clip(_LOWEST, _HIGHEST)


def pose_coordinates(poses: Floats) -> Floats:
    """Scale poses (…, 5) to numbers that may be compared with those of a field."""
    return np.asarray((poses - _USUAL) * _WEIGHTS)


def poses_from(coordinates: Floats) -> Floats:
    """Undo `pose_coordinates`, within the limits of a measured pose."""
    return np.asarray((coordinates / _WEIGHTS + _USUAL).clip(_LOWEST, _HIGHEST))


def normalize_pose(plane: Floats, pose: Floats) -> Floats:
    """Move one plane (height, width) of a drawing from its pose into the common one; the rim continues outside."""
    forward, offset = _affine(pose, plane.shape)
    return np.asarray(affine_transform(plane, forward, offset, order=1, mode="nearest"))


def apply_poses(planes: Floats, poses: Floats) -> NDArray[np.float32]:
    """Move planes (n, channels, height, width) from the common pose into poses (n, 5), as float32."""
    import torch
    from torch.nn import functional

    width, height = np.exp(poses[:, 3]), np.exp(poses[:, 4])
    maps = np.zeros((len(poses), 3, 3))
    # Half a side is 1 here, and a lean is one of pixels.
    leans = poses[:, 2] * (planes.shape[2] / planes.shape[3])
    maps[:, 0, 0], maps[:, 0, 1], maps[:, 1, 1], maps[:, 2, 2] = width, leans * height, height, 1
    maps[:, :2, 2] = 2 * poses[:, :2]
    inverse = torch.from_numpy(np.linalg.inv(maps)[:, :2]).float()
    images = torch.from_numpy(planes).float()
    grid = functional.affine_grid(inverse, list(images.shape), align_corners=False)
    moved: NDArray[np.float32] = functional.grid_sample(
        images, grid, padding_mode="border", align_corners=False
    ).numpy()
    return moved


def _coordinates(ink: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return ink, and distances down and right of the middle in half pixels, as integers."""
    down, right = (2 * axis - (size - 1) for axis, size in zip(np.indices(ink.shape), ink.shape, strict=True))
    return ink.astype(np.int64), down, right


def _affine(pose: Floats, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
    """Return matrix and offset, in rows and columns, from the common pose to where the plane is read."""
    rows, columns = shape
    width, height = math.exp(pose[3]), math.exp(pose[4])
    matrix = np.array([[height, 0.0], [pose[2] * height, width]])
    middle = np.array([(rows - 1) / 2, (columns - 1) / 2])
    offset = middle + np.array([pose[1] * rows, pose[0] * columns]) - matrix @ middle
    return matrix, offset
