"""Augmentation of samples: small random affine maps, and small random changes of contrast and texture.

They depend on no data. Samples of a Gaussian are smooth where records have cloth, grain or strokes; a classifier that
learns from smooth samples alone takes a texture for an outline.
"""

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from datalens_service.base.arrays import Floats32
from datalens_service.data.dataset import Images

# Largest changes: radians, fractions of size, shear, and fractions of half a side.
_ROTATION, _SIZE, _SHEAR, _SHIFT = math.radians(12), 0.10, 0.15, 0.107

_CROPS, _MOST_NUMBERS = 3, 2**26
"""Crops of an image, and the most numbers of a pool with all crops: 21,845 images of 32×32 in colour."""
_LEAST_PART, _LONGEST = 0.5, 4 / 3
"""Least part of an image's area that a crop shows, and its largest proportion, relative to that of the image."""

_CHANGED: Final = np.float32(0.7)
"""Share of images whose contrast changes, and of those whose texture does."""

_CONTRAST: Final = (0.7, 1.6)
_STRENGTH: Final = 0.5
# Radii of the blur, one of them for each image; in sides of a square as large: 0.7 and 1.5 pixels of 28.
_GRAINS: Final = (0.025, 0.054)
_REACH: Final = 3
_BLOCK: Final = 4096


def random_affine_maps(n: int, rng: np.random.Generator) -> Floats32:
    """Draw affine maps (n, 2, 3) from coordinates in the new image to those in the old one, for `augment_affine`.

    Turning and shear count in pixels, shifts in halves of a side.
    """
    rotation, wide, high, shear, right, down = rng.uniform(-1, 1, (6, n)).astype(np.float32)
    cosine, sine = np.cos(_ROTATION * rotation), np.sin(_ROTATION * rotation)
    top = np.stack([cosine * (1 + _SIZE * wide), -sine + _SHEAR * shear, _SHIFT * right], axis=1)
    bottom = np.stack([sine, cosine * (1 + _SIZE * high), _SHIFT * down], axis=1)
    return np.stack([top, bottom], axis=1)


def augment_affine(images: Tensor, maps: Floats32) -> Tensor:
    """Return images (n, channels, height, width) seen through `maps` (n, 2, 3), bilinear, black outside."""
    height, width = images.shape[-2:]
    # The grid counts in halves of each side.
    aspect = np.array([[1, height / width, 1], [width / height, 1, 1]], dtype=np.float32)
    theta = torch.from_numpy(maps * aspect).to(images.device)
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def with_crops(images: Images, rng: np.random.Generator) -> Images:
    """Append three crops of each image, or as many as there is room for, in their order."""
    crops = min(_CROPS, _MOST_NUMBERS // images.size - 1)
    return np.concatenate([images, *(crop_photographs(images, rng) for _ in range(crops))])


def crop_photographs(images: Images, rng: np.random.Generator) -> Images:
    """Crop each image to a part, enlarged to the whole, mirrored or not.

    Args:
        images: uint8 (n, height, width, channels).
    """
    blocks = [images[row : row + _BLOCK] for row in range(0, len(images), _BLOCK)]
    return np.concatenate([_cropped(block, random_crops(len(block), rng)) for block in blocks])


def _cropped(images: Images, maps: Floats32) -> Images:
    planes = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float()
    return augment_affine(planes, maps).round_().to(torch.uint8).permute(0, 2, 3, 1).numpy()


def random_crops(n: int, rng: np.random.Generator) -> Floats32:
    """Draw maps (n, 2, 3) for `augment_affine`, each to a part inside of the old image, half of them mirrored."""
    area, stretch = rng.uniform(_LEAST_PART, 1, n), _LONGEST ** rng.uniform(-1, 1, n)
    wide, high = (np.minimum(np.sqrt(size), 1) for size in (area * stretch, area / stretch))
    right, down = (1 - wide) * rng.uniform(-1, 1, n), (1 - high) * rng.uniform(-1, 1, n)
    zeros, mirrored = np.zeros(n), np.where(rng.random(n) < 0.5, -1, 1)
    rows = np.stack([wide * mirrored, zeros, right], axis=1), np.stack([zeros, high, down], axis=1)
    return np.stack(rows, axis=1).astype(np.float32)


def augment_texture(images: Tensor, rng: np.random.Generator) -> Tensor:
    """Give some images another contrast, some a texture: their pixels times 1 + blurred noise; in [0, 1].

    Args:
        images: float32 (n, channels, height, width) in [0, 1].
    """
    blocks = torch.split(images, _BLOCK)
    return torch.cat([_texturize(_change_contrast(block, rng), rng) for block in blocks])


def _change_contrast(images: Tensor, rng: np.random.Generator) -> Tensor:
    factors = np.where(_choose(len(images), rng), rng.uniform(*_CONTRAST, len(images)), 1)
    return (images * _per_image(factors)).clamp(0, 1)


def _texturize(images: Tensor, rng: np.random.Generator) -> Tensor:
    count, _, height, width = images.shape
    strengths = np.where(_choose(count, rng), rng.uniform(0, _STRENGTH, count), 0)
    fine = rng.random(count) < 0.5
    noise = torch.from_numpy(rng.standard_normal((count, 1, height, width), dtype=np.float32))
    small, large = (_blur(noise, grain * math.sqrt(height * width)) for grain in _GRAINS)
    texture = torch.where(_per_image(fine) > 0, small, large)
    return (images * (1 + _per_image(strengths) * texture)).clamp(0, 1)


def _choose(count: int, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return rng.random(count, dtype=np.float32) < _CHANGED


def _per_image(numbers: np.ndarray[tuple[int], np.dtype[np.generic]]) -> Tensor:
    """Reshape numbers (n,) to float32 (n, 1, 1, 1)."""
    return torch.from_numpy(numbers.astype(np.float32)).view(-1, 1, 1, 1)


def _blur(noise: Tensor, radius: float) -> Tensor:
    """Blur white noise (n, 1, height, width) by a Gaussian of `radius` pixels, to variance 1 away from the edges."""
    reach = math.ceil(_REACH * radius)
    offsets = torch.arange(-reach, reach + 1, dtype=torch.float32)
    kernel = torch.exp(-(offsets**2) / (2 * radius**2))
    kernel = kernel / torch.linalg.vector_norm(kernel)
    along = functional.conv2d(noise, kernel.view(1, 1, 1, -1), padding=(0, reach))
    return functional.conv2d(along, kernel.view(1, 1, -1, 1), padding=(reach, 0))
