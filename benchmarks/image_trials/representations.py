"""Images as vectors, before anything is released: pixels, distances, in their own pose or in a common one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Schema
from datalens_service.models.generators.level_sets import LevelSets
from datalens_service.models.generators.outlines import signed_distances
from datalens_service.models.generators.poses import (
    POSE_NUMBERS,
    apply_poses,
    measure_pose,
    normalize_pose,
    pose_coordinates,
    poses_from,
)

Floats = NDArray[np.float64]

_DEPTH, _SLOPE, _LEVEL = 3.0, 0.8, 0.5


class Representation(NamedTuple):
    """How an image becomes a vector, and a vector an image in [0, 1]."""

    encode: Callable[[Images], Floats]
    decode: Callable[[Floats], NDArray[np.float32]]
    vector_norm: float
    residual_norm: float
    origin: Floats | None = None


def _pixels(images: Images) -> Floats:
    return np.asarray(images.reshape(len(images), -1) / 255.0)


def _distances(images: Images) -> Floats:
    fields = signed_distances(images[..., 0], _LEVEL).clip(-_DEPTH, _DEPTH) + _DEPTH
    return np.asarray(fields.reshape(len(images), -1))


def _drawn(fields: Floats) -> NDArray[np.float32]:
    return np.asarray((0.5 + _SLOPE * (fields - _DEPTH)).clip(0, 1), dtype=np.float32)


def _posed(image: NDArray[np.uint8], distances: bool) -> Floats:
    ink = image[..., 0]
    pose = measure_pose(ink)
    if distances:
        plane = normalize_pose(signed_distances(ink[None], _LEVEL)[0], pose).clip(-_DEPTH, _DEPTH) + _DEPTH
    else:
        plane = normalize_pose(ink / 255.0, pose)
    return np.concatenate([plane.ravel(), pose_coordinates(pose) / (1 if distances else 3)])


def _placed(vectors: Floats, distances: bool) -> NDArray[np.float32]:
    side = round((vectors.shape[1] - POSE_NUMBERS) ** 0.5)
    planes = vectors[:, :-POSE_NUMBERS].reshape(-1, 1, side, side)
    poses = poses_from(vectors[:, -POSE_NUMBERS:] * (1 if distances else 3))
    placed = apply_poses(planes, poses).reshape(len(vectors), -1)
    return _drawn(placed) if distances else placed.clip(0, 1)


def _level_sets(schema: Schema, content: str, vector_norm: float, residual_norm: float) -> Representation:
    codec = LevelSets(schema, "drawings" if content == "drawings" else "objects")
    return Representation(codec.encode, codec.decode, vector_norm, residual_norm, codec.origin())


REPRESENTATIONS: Final[dict[str, Callable[[Schema], Representation]]] = {
    "pixels": lambda schema: Representation(
        _pixels, lambda vectors: np.asarray(vectors.clip(0, 1), dtype=np.float32), 9.8, 6.6
    ),
    "posed pixels": lambda schema: Representation(
        lambda images: np.stack([_posed(image, False) for image in images]),
        lambda vectors: _placed(vectors, False),
        11.0,
        8.3,
    ),
    "distances": lambda schema: Representation(_distances, _drawn, 50.0, 21.5),
    "posed distances": lambda schema: Representation(
        lambda images: np.stack([_posed(image, True) for image in images]),
        lambda vectors: _placed(vectors, True),
        55.0,
        18.0,
    ),
    "drawings": lambda schema: _level_sets(schema, "drawings", 28.0, 18.0),
    "objects": lambda schema: _level_sets(schema, "objects", 104.0, 61.0),
}
"""By name; the last two are those of the method `shapes`."""
