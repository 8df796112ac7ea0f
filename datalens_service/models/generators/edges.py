"""Edges for images to look at, of blurred ones: post-processing by public constants.

A Gaussian over low frequencies has slopes where images have edges. Total variation takes out its grain (Rudin, Osher
and Fatemi 1992, "Nonlinear total variation based noise removal algorithms"), then a shock filter makes slopes steep
(Osher and Rudin 1990, "Feature-oriented image enhancement using shock filters").
"""

from typing import Final

import numpy as np

from datalens_service.base.arrays import Floats32
from datalens_service.data.dataset import Schema

_SIDES: Final = range(33, 65)
"""At 32 pixels the mosaic lies farther from real images than the blur (docs/findings.md, edges)."""
_VARIATION: Final = 0.05
"""Weight of total variation beside half the squared change of pixels in [0, 1]."""
_DUAL_STEPS: Final = 20
_DUAL_RATE: Final = np.float32(0.248)
"""Below the 1/4 that Chambolle (2004, "An algorithm for total variation minimization") needs, with a margin."""
_SHOCK_STEPS, _SHOCK_RATE = 8, np.float32(0.4)
_SMOOTHED: Final = 1.6
"""Radius in pixels of the blur in which the shock filter looks for edges."""
_BLOCK: Final = 2**18
"""Numbers that are sharpened at once: they stay in the cache of a core."""


def wants_edges(schema: Schema) -> bool:
    """Tell whether such images look better with edges: those in colour, of sizes that were looked at."""
    return schema.channels > 1 and all(side in _SIDES for side in (schema.height, schema.width))


def sharpen(images: Floats32) -> Floats32:
    """Return images (n, channels, height, width) in [0, 1] with less grain and with edges."""
    rows = max(1, _BLOCK // images[0].size)
    blocks = [images[start : start + rows] for start in range(0, len(images), rows)]
    return np.concatenate([shock(reduce_variation(block)) for block in blocks]).clip(0.0, 1.0)


def reduce_variation(images: Floats32, weight: float = _VARIATION) -> Floats32:
    """Minimize half the squared change plus `weight` times the total variation, all channels together.

    Chambolle's descent in the dual, by a fixed number of steps.
    """
    across, down = np.zeros_like(images), np.zeros_like(images)
    scaled = images / np.float32(weight)
    for _ in range(_DUAL_STEPS):
        slack = _diverge(across, down) - scaled
        right, below = _DUAL_RATE * _step_across(slack), _DUAL_RATE * _step_down(slack)
        length = 1 + np.sqrt((right**2 + below**2).sum(axis=1, keepdims=True))
        across, down = (across + right) / length, (down + below) / length
    return np.asarray(images - np.float32(weight) * _diverge(across, down))


def _step_across(values: Floats32) -> Floats32:
    """Differences to the pixel on the right; 0 at the border."""
    return np.diff(values, axis=3, append=values[..., -1:])


def _step_down(values: Floats32) -> Floats32:
    return np.diff(values, axis=2, append=values[..., -1:, :])


def _diverge(across: Floats32, down: Floats32) -> Floats32:
    """The negative adjoint of both differences, whose last ones are 0."""
    return np.diff(across, axis=3, prepend=0) + np.diff(down, axis=2, prepend=0)


def shock(images: Floats32) -> Floats32:
    """Spread what lies on either side of an edge up to it; extrema of an image stay.

    An edge is where the blurred brightness has no curvature along its gradient (Alvarez and Mazorra 1994, "Signal and
    image restoration using shock filters and anisotropic diffusion").
    """
    for _ in range(_SHOCK_STEPS):
        images = images - _SHOCK_RATE * np.sign(_find_curvature(images)) * _measure_slope(images)
    return images


def _find_curvature(images: Floats32) -> Floats32:
    """Return the curvature along the gradient of the blurred brightness, (n, 1, height, width), up to a factor > 0."""
    from scipy.ndimage import gaussian_filter

    brightness = images.mean(axis=1, keepdims=True)
    blurred = gaussian_filter(brightness, (0, 0, _SMOOTHED, _SMOOTHED), mode="nearest", truncate=3.0)
    down, across = np.gradient(blurred, axis=(2, 3))
    (down_twice, mixed), across_twice = np.gradient(down, axis=(2, 3)), np.gradient(across, axis=3)
    return np.asarray(across**2 * across_twice + 2 * across * down * mixed + down**2 * down_twice)


def _measure_slope(images: Floats32) -> Floats32:
    """Return the length of the gradient, from the flatter of both sides, and 0 where one rises and the other falls."""
    right, below = _step_across(images), _step_down(images)
    left = np.diff(images, axis=3, prepend=images[..., :1])
    above = np.diff(images, axis=2, prepend=images[..., :1, :])
    return np.asarray(np.sqrt(_flatter(left, right) ** 2 + _flatter(above, below) ** 2))


def _flatter(first: Floats32, second: Floats32) -> Floats32:
    return np.where(first * second > 0, np.minimum(np.abs(first), np.abs(second)), np.float32(0))
