"""Images as signed distances to an outline: a sum of two such fields still has a sharp outline.

A mean of pixels is grey; a mean of signed distances, cut at zero, is again a stroke (Leventon, Grimson, Faugeras 2000,
"Statistical Shape Influence in Geodesic Active Contours"). Drawings are moved into a common pose first, so that place,
size and lean are five numbers beside the shape; objects keep grey values inside their outline (Cootes, Edwards, Taylor
2001, "Active Appearance Models").

Every step on an image is a function of that image alone.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from datalens_service.base.arrays import Floats
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.level_sets.outlines import (
    POSE_NUMBERS,
    SIDE,
    apply_poses,
    measure_pose,
    normalize_pose,
    pose_coordinates,
    poses_from,
    signed_distances,
)

Content = Literal["drawings", "objects"]

# Farther from the outline than this, distance is no matter.
_DEPTH: Final = 3.0
_INK: Final = 0.7
# Brightness per pixel across the outline.
_SLOPE: Final = 0.8
_FIELD_FREQUENCIES: Final = 144
_SHADING_FREQUENCIES: Final = 300
_SHADING_WEIGHT: Final = 12.0
# Lowest frequencies of usual fields, in zigzag order.
_BLOB: Final = np.array([32.0, 0.0, 0.0, -14.0, 0.0, -24.0])
_FLAT: Final = np.array([SIDE * _DEPTH])
_ROWS: Final = 1024


@dataclass(frozen=True)
class LevelSets:
    """Encodes images as vectors, and vectors as images.

    Attributes:
        content: `drawings`: bright strokes of one brightness, in a common pose; `objects`: a bright object with grey
            values inside, in its own pose. The background is dark.
    """

    schema: Schema
    content: Content

    @property
    def field_numbers(self) -> int:
        """Return how many numbers of a vector are those of the field; they come first."""
        return min(_FIELD_FREQUENCIES, self._pixels)

    @property
    def dimensions(self) -> int:
        """Return the length of a vector."""
        return self.field_numbers + (POSE_NUMBERS if self._posed else self._shading_numbers)

    def origin(self) -> Floats:
        """Return a public vector (dimensions,) near to most images: a blob in the middle, or a flat field."""
        vector = np.zeros(self.dimensions)
        lowest = _BLOB if self._posed else _FLAT
        vector[: len(lowest)] = lowest[: self.field_numbers]
        return vector

    @property
    def ink_level(self) -> float:
        """Return the brightness, of 1, from which a pixel is ink: below the outline's, as thin strokes are grey."""
        return _INK * self._level

    def encode(self, images: Images) -> Floats:
        """Encode uint8 images (n, height, width, channels) as vectors (n, dimensions), each from its own image."""
        vectors = np.empty((len(images), self.dimensions))
        for start in range(0, len(images), _ROWS):
            block, rows = images[start : start + _ROWS], vectors[start : start + _ROWS]
            fields, poses = self._fields(block), self._poses(block)
            rows[:, : self.field_numbers] = self._list_numbers(fields, poses)
            if self._posed:
                rows[:, -POSE_NUMBERS:] = pose_coordinates(poses)
            else:
                rows[:, self.field_numbers :] = self._fit_shading(block, fields)
        return vectors

    def encode_fields(self, images: Images) -> Floats:
        """Return the first `field_numbers` of what `encode` returns, in less time."""
        blocks = [images[start : start + _ROWS] for start in range(0, len(images), _ROWS)]
        numbers = [self._list_numbers(self._fields(block), self._poses(block)) for block in blocks]
        return np.concatenate(numbers) if numbers else np.empty((0, self.field_numbers))

    def decode(self, vectors: Floats) -> NDArray[np.float32]:
        """Decode vectors to float32 images (n, d) in [0, 1], channels first."""
        field_basis, shading_basis = self._bases()
        split = self.field_numbers
        planes = self._planes(vectors[:, :split] @ field_basis.T)
        if self._posed:
            return self._painted(apply_poses(planes, poses_from(vectors[:, split:])), None)
        return self._painted(planes, vectors[:, split:] @ shading_basis.T)

    def decode_records(self, vectors: Floats) -> Images:
        """Decode private vectors to uint8 images (n, height, width, channels), each a function of its own vector."""
        images = np.empty((len(vectors), self.schema.height, self.schema.width, self.schema.channels), dtype=np.uint8)
        for start in range(0, len(vectors), _ROWS):
            images[start : start + _ROWS] = self._decode_block(vectors[start : start + _ROWS])
        return images

    def _decode_block(self, vectors: Floats) -> Images:
        field_basis, shading_basis = self._bases()
        split, schema = self.field_numbers, self.schema
        numbers = on_grid(vectors, self._longest * _SHADING_WEIGHT)
        planes = self._planes(exact_products(numbers[:, :split], field_basis.T))
        if self._posed:
            poses = poses_from(numbers[:, split:])
            # One at a time: a product of several matrices may depend on how many there are.
            moved = [apply_poses(planes[row : row + 1], poses[row : row + 1]) for row in range(len(planes))]
            images = self._painted(np.concatenate(moved), None)
        else:
            images = self._painted(planes, exact_products(numbers[:, split:], shading_basis.T))
        shape = (-1, schema.channels, schema.height, schema.width)
        return np.rint(images * 255).astype(np.uint8).reshape(shape).transpose(0, 2, 3, 1)

    def _planes(self, fields: Floats) -> NDArray[Any]:
        """Return signed distances (n, 1, height, width) from products with the basis."""
        return (fields / self._density - _DEPTH).reshape(-1, 1, self.schema.height, self.schema.width)

    def _painted(self, planes: NDArray[Any], shading: Floats | None) -> NDArray[np.float32]:
        """Paint images, float32 (n, d), bright inside the outline, with shading where there is some."""
        schema = self.schema
        shape = (len(planes), schema.channels, schema.height, schema.width)
        images = np.broadcast_to((0.5 + _SLOPE * self._unit * planes).clip(0, 1), shape)
        if shading is not None:
            shades = shading / (_SHADING_WEIGHT * self._density) + 0.5
            images = images * shades.reshape(shape).clip(0, 1)
        return np.ascontiguousarray(images.reshape(len(planes), -1), dtype=np.float32)

    @property
    def _posed(self) -> bool:
        return self.content == "drawings"

    @property
    def _level(self) -> float:
        """Return the brightness from which a pixel is foreground."""
        return 0.5 if self._posed else 0.1

    @property
    def _pixels(self) -> int:
        return self.schema.height * self.schema.width

    @property
    def _unit(self) -> float:
        """Return the pixels per unit of length."""
        return math.sqrt(self._pixels) / SIDE

    @property
    def _longest(self) -> float:
        """Return a length that no image's layers exceed."""
        return math.sqrt(self.schema.dimensions) * 2 * _DEPTH

    @property
    def _density(self) -> float:
        """Return the factor that makes the length of a vector independent of the resolution."""
        return SIDE / math.sqrt(self._pixels)

    @property
    def _shading_numbers(self) -> int:
        return self.schema.channels * min(_SHADING_FREQUENCIES, self._pixels)

    def _bases(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        plane = self.schema.model_copy(update={"channels": 1})
        return dct_basis(plane, self.field_numbers), dct_basis(self.schema, self._shading_numbers)

    def _fields(self, images: Images) -> Floats:
        """Return signed distances (n, height, width) in units of length."""
        return signed_distances(images.max(axis=3), self._level) / self._unit

    def _poses(self, images: Images) -> Floats:
        """Return the poses of drawings (n, 5), none of objects (n, 0)."""
        if not self._posed:
            return np.empty((len(images), 0))
        return np.stack([measure_pose(ink) for ink in images.max(axis=3)])

    def _list_numbers(self, fields: Floats, poses: Floats) -> Floats:
        """Return the numbers of fields (n, field_numbers), moved into the common pose if they are drawings."""
        if self._posed:
            fields = np.stack([normalize_pose(field, pose) for field, pose in zip(fields, poses, strict=True)])
        cut = (fields.clip(-_DEPTH, _DEPTH) + _DEPTH).reshape(len(fields), -1)
        return exact_products(on_grid(cut, self._longest), self._bases()[0]) * self._density

    def _fit_shading(self, images: Images, fields: Floats) -> Floats:
        """Return the shading of objects (n, shading numbers)."""
        inside = (0.5 + self._unit * fields).clip(0, 1) ** 2
        cover = _blurred(inside, 2 * self._unit)
        planes = np.ascontiguousarray(np.moveaxis(images, 3, 0)) / 255.0
        shades = np.stack([self._shade(plane, inside, cover) for plane in planes], axis=1) - 0.5
        shades = shades.reshape(len(images), -1)
        return exact_products(on_grid(shades, self._longest), self._bases()[1]) * (_SHADING_WEIGHT * self._density)

    def _shade(self, plane: Floats, inside: Floats, cover: Floats) -> Floats:
        """Continue the foreground's brightness in one channel (n, height, width) smoothly into the background."""
        lit = plane * inside
        mean = _means(lit) / np.maximum(_means(inside), 1e-3)
        around = (_blurred(lit, 2 * self._unit) + 0.02 * mean) / (cover + 0.02)
        return inside * plane + (1 - inside) * around


def _blurred(planes: Floats, stddev: float) -> Floats:
    return np.asarray(gaussian_filter(planes, stddev, axes=(1, 2)))


def _means(planes: Floats) -> Floats:
    """Average each plane, (n, 1, 1)."""
    return np.asarray(planes.reshape(len(planes), -1).mean(axis=1)[:, None, None])
