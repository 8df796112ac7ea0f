"""Images as signed distances to an outline: a sum of two such fields still has a sharp outline.

A mean of pixels is grey; a mean of signed distances, cut at zero, is again a stroke (Leventon, Grimson, Faugeras 2000,
"Statistical Shape Influence in Geodesic Active Contours"). Drawings are moved into a common pose first, so that place,
size and lean are five numbers beside the shape; objects keep grey values inside their outline (Cootes, Edwards, Taylor
2001, "Active Appearance Models").

What is done to an image is a function of that image alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, gaussian_filter, zoom

from datalens_service.data.dataset import Images, Schema
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.poses import (
    POSE_NUMBERS,
    apply_poses,
    measure_pose,
    normalize_pose,
    pose_coordinates,
    poses_from,
)

Floats = NDArray[np.float64]
Content = Literal["drawings", "objects"]

# Lengths are counted in twenty-eighths of an image's side. Farther from the outline than this, distance is no matter.
_SIDE: Final = 28.0
_DEPTH: Final = 3.0
_INK: Final = 0.7
_FAR: Final = 6.0
_ENLARGEMENT: Final = 3
# Brightness per pixel across the outline.
_SLOPE: Final = 0.8
_FIELD_FREQUENCIES: Final = 144
_SHADING_FREQUENCIES: Final = 300
_SHADING_WEIGHT: Final = 12.0
# Lowest frequencies of usual fields, in zigzag order.
_BLOB: Final = np.array([32.0, 0.0, 0.0, -14.0, 0.0, -24.0])
_FLAT: Final = np.array([_SIDE * _DEPTH])
_ROWS: Final = 1024


class _Layers(NamedTuple):
    """One image: its field (pixels,), its shading (d,) and its pose, those that its content has."""

    field: Floats
    shading: Floats
    pose: Floats


@dataclass(frozen=True)
class LevelSets:
    """Encodes images as vectors, and vectors as images.

    Attributes:
        schema: Of the images.
        content: `drawings`: bright strokes of one brightness, in a common pose; `objects`: a bright object with grey
            values inside, in its own pose. The background is dark.
    """

    schema: Schema
    content: Content

    @property
    def field_numbers(self) -> int:
        """Numbers of the field, the first ones of a vector."""
        return min(_FIELD_FREQUENCIES, self._pixels)

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return self.field_numbers + (POSE_NUMBERS if self._posed else self._shading_numbers)

    def origin(self) -> Floats:
        """(dimensions,) public vector near to most images: a blob in the middle, or a flat field."""
        vector = np.zeros(self.dimensions)
        lowest = _BLOB if self._posed else _FLAT
        vector[: len(lowest)] = lowest[: self.field_numbers]
        return vector

    @property
    def ink_level(self) -> float:
        """Brightness, of 1, from which a pixel counts as ink: below that of the outline, as thin strokes are grey."""
        return _INK * self._level

    def encode(self, images: Images) -> Floats:
        """Vectors (n, dimensions) of uint8 images (n, height, width, channels), each a function of its own image."""
        field_basis, shading_basis = self._bases()
        vectors = np.empty((len(images), self.dimensions))
        for start in range(0, len(images), _ROWS):
            layers = [self._layers(image) for image in images[start : start + _ROWS]]
            fields, others = np.stack([item.field for item in layers]), np.stack([item.shading for item in layers])
            rows = vectors[start : start + _ROWS]
            rows[:, : self.field_numbers] = exact_products(on_grid(fields, self._longest), field_basis) * self._density
            if self._posed:
                rows[:, -POSE_NUMBERS:] = pose_coordinates(np.stack([item.pose for item in layers]))
            else:
                shades = exact_products(on_grid(others, self._longest), shading_basis)
                rows[:, self.field_numbers :] = shades * (_SHADING_WEIGHT * self._density)
        return vectors

    def decode(self, vectors: Floats) -> NDArray[np.float32]:
        """float32 images (n, d) in [0, 1], channels first."""
        field_basis, shading_basis = self._bases()
        split = self.field_numbers
        planes = self._planes(vectors[:, :split] @ field_basis.T)
        if self._posed:
            return self._painted(apply_poses(planes, poses_from(vectors[:, split:])), None)
        return self._painted(planes, vectors[:, split:] @ shading_basis.T)

    def decode_records(self, vectors: Floats) -> Images:
        """uint8 images (n, height, width, channels) of private vectors, each a function of its own vector."""
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
        """(n, 1, height, width) signed distances of products with the basis."""
        return (fields / self._density - _DEPTH).reshape(-1, 1, self.schema.height, self.schema.width)

    def _painted(self, planes: NDArray[Any], shading: Floats | None) -> NDArray[np.float32]:
        """float32 (n, d): bright inside the outline, with shading where there is some."""
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
        """Brightness from which a pixel is foreground."""
        return 0.5 if self._posed else 0.1

    @property
    def _pixels(self) -> int:
        return self.schema.height * self.schema.width

    @property
    def _unit(self) -> float:
        """Pixels per unit of length."""
        return math.sqrt(self._pixels) / _SIDE

    @property
    def _longest(self) -> float:
        """Length that no image's layers exceed."""
        return math.sqrt(self.schema.dimensions) * 2 * _DEPTH

    @property
    def _density(self) -> float:
        """Makes the length of a vector independent of the resolution."""
        return _SIDE / math.sqrt(self._pixels)

    @property
    def _shading_numbers(self) -> int:
        return self.schema.channels * min(_SHADING_FREQUENCIES, self._pixels)

    def _bases(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        plane = self.schema.model_copy(update={"channels": 1})
        return dct_basis(plane, self.field_numbers), dct_basis(self.schema, self._shading_numbers)

    def _layers(self, image: NDArray[np.uint8]) -> _Layers:
        """Of one image (height, width, channels)."""
        ink = image.max(axis=2)
        field = signed_distances(ink, self._level) / self._unit
        if self._posed:
            pose = measure_pose(ink)
            moved = normalize_pose(field, pose).clip(-_DEPTH, _DEPTH) + _DEPTH
            return _Layers(moved.ravel(), np.zeros(1), pose)
        shading = np.stack(list(self._shades(image, field))) - 0.5
        return _Layers((field.clip(-_DEPTH, _DEPTH) + _DEPTH).ravel(), shading.ravel(), np.zeros(POSE_NUMBERS))

    def _shades(self, image: NDArray[np.uint8], field: Floats) -> Iterator[Floats]:
        """Per channel the brightness of the foreground, continued smoothly into the background."""
        inside = (0.5 + self._unit * field).clip(0, 1) ** 2
        cover = gaussian_filter(inside, 2 * self._unit)
        for plane in np.moveaxis(image, 2, 0) / 255.0:
            mean = (plane * inside).mean() / max(float(inside.mean()), 1e-3)
            around = (gaussian_filter(plane * inside, 2 * self._unit) + 0.02 * mean) / (cover + 0.02)
            yield inside * plane + (1 - inside) * around


def signed_distances(ink: NDArray[np.uint8], level: float) -> Floats:
    """Distance to the outline in pixels, positive inside, of one plane (height, width); at most 6/28 of a side.

    Args:
        ink: Brightness.
        level: Brightness, of 1, of the outline.
    """
    farthest = _FAR * math.sqrt(ink.size) / _SIDE
    larger = _enlarged(ink) > level * 255
    if not larger.any() or larger.all():
        return np.full(ink.shape, farthest if larger.any() else -farthest)
    distances = distance_transform_edt(larger) - distance_transform_edt(~larger)
    # Pixel centres lie half a pixel off the outline.
    distances = (distances - np.copysign(0.5, distances)) / _ENLARGEMENT
    parts = distances.reshape(ink.shape[0], _ENLARGEMENT, ink.shape[1], _ENLARGEMENT)
    return np.asarray(parts.mean(axis=(1, 3)).clip(-farthest, farthest))


def _enlarged(ink: NDArray[np.uint8]) -> Floats:
    """Three times as many rows and columns, linear between pixel centres."""
    return np.asarray(zoom(ink.astype(np.float64), _ENLARGEMENT, order=1, mode="nearest", grid_mode=True))
