"""Small random changes of pose: rotation, size, shear and shift. They depend on no data."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Floats = NDArray[np.float32]

# Largest changes: radians, fractions of size, shear, and fractions of half a side.
_ROTATION, _SIZE, _SHEAR, _SHIFT = math.radians(12), 0.10, 0.15, 0.107


def poses(n: int, rng: np.random.Generator) -> Floats:
    """(n, 2, 3) affine maps from places in the new image to places in the old one, as `warped` takes them."""
    rotation, wide, high, shear, right, down = rng.uniform(-1, 1, (6, n)).astype(np.float32)
    cosine, sine = np.cos(_ROTATION * rotation), np.sin(_ROTATION * rotation)
    top = np.stack([cosine * (1 + _SIZE * wide), -sine + _SHEAR * shear, _SHIFT * right], axis=1)
    bottom = np.stack([sine, cosine * (1 + _SIZE * high), _SHIFT * down], axis=1)
    return np.stack([top, bottom], axis=1)


def warped(images: Tensor, maps: Floats) -> Tensor:
    """Images (n, channels, height, width) seen through `maps` (n, 2, 3), bilinear, black outside."""
    theta = torch.from_numpy(maps).to(images.device)
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)
