"""Samples of a Gaussian over signed distances, of which only those that are images are accepted.

Not every vector is an image: it may describe a stroke that fades, or distances that are none. A sample is decoded and
encoded again, and accepted where its field comes back nearly as it was. No private number is needed for that.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats32, Tensors
from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.generators.level_sets.level_sets import LevelSets

# Samples of each class, to find out how well they come back.
_TRIED: Final = 200
# A sample that was refused so often is handed out: with a quarter of the samples accepted, one in a million.
_ROUNDS: Final = 48


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw accepted images (n, d) in [0, 1].

    Args:
        tensors: `basis` (d, q), `means` (classes, d), `factors` (classes, q, q), `tolerances` (classes,).
        settings: `content`; `spread`, how much wider samples lie than records.
    """
    codec = LevelSets(schema, settings["content"])
    images = np.empty((len(labels), schema.dimensions), dtype=np.float32)
    unfilled = np.arange(len(labels))
    for _ in range(_ROUNDS):
        if not len(unfilled):
            break
        images[unfilled], errors = propose(codec, tensors, settings["spread"], labels[unfilled], rng)
        unfilled = unfilled[errors > tensors["tolerances"][labels[unfilled]]]
    return images


def tolerances(tensors: Tensors, settings: dict[str, Any], schema: Schema, accepted: float, seed: int) -> Floats32:
    """Return errors (classes,) that `accepted`, a share in (0, 1], of the samples of a class stays below."""
    if accepted == 1:
        return np.full(schema.num_classes, np.inf, dtype=np.float32)
    labels = np.repeat(np.arange(schema.num_classes), _TRIED)
    codec, rng = LevelSets(schema, settings["content"]), np.random.default_rng(seed)
    _, errors = propose(codec, tensors, settings["spread"], labels, rng)
    return np.quantile(errors.reshape(-1, _TRIED), accepted, axis=1).astype(np.float32)


def draw_vectors(
    codec: LevelSets, tensors: Tensors, spread: float, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw samples (n, dimensions) of classes (n,), before they are decoded; arguments as of `propose`."""
    basis, means, factors = (tensors[name].astype(np.float64) for name in ("basis", "means", "factors"))
    points = rng.standard_normal((len(labels), basis.shape[1])) * spread
    vectors = np.empty((len(labels), codec.dimensions))
    for label in np.unique(labels):
        rows = labels == label
        vectors[rows] = means[label] + points[rows] @ factors[label].T @ basis.T
    return vectors


def propose(
    codec: LevelSets, tensors: Tensors, spread: float, labels: Labels, rng: np.random.Generator
) -> tuple[Floats32, NDArray[np.float64]]:
    """Draw images, accepted or not.

    Returns:
        float32 images (n, d), and squared distances (n,) by which their fields move when they are encoded again.
    """
    vectors = draw_vectors(codec, tensors, spread, labels, rng)
    images = codec.decode(vectors)
    schema, field = codec.schema, slice(codec.field_numbers)
    planes = np.rint(images * 255).astype(np.uint8).reshape(-1, schema.channels, schema.height, schema.width)
    moved = codec.encode_fields(planes.transpose(0, 2, 3, 1)) - vectors[:, field]
    return images, np.einsum("ij,ij->i", moved, moved)
