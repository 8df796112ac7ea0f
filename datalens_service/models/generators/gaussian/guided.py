"""A guided generator: augmented samples of a released model, relabelled by a privately trained classifier.

Gaussian samples rarely fall near class boundaries. Their variance is inflated, they are augmented by affine maps,
contrast and texture, and relabelled by the classifier, which has learnt from records. This has nothing to do with the
classifier guidance of diffusion models.
"""

from functools import partial
from typing import Any, Final

import numpy as np
import torch

from datalens_service.base.arrays import Floats32, Tensors
from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.classifiers.last_layer import LastLayerClassifier
from datalens_service.models.generators.augmentation import augment_affine, augment_texture, random_affine_maps
from datalens_service.models.generators.gaussian import gaussian, mixture
from datalens_service.models.generators.requests import fill_requests
from datalens_service.models.released import join_parts, select_part

STARTS: Final = {"gaussian": gaussian.draw, "mixture": mixture.draw}
"""Models that samples are drawn from."""

_BASE, _CLASSIFIER = "start.", "labeller."
_SCALES: Final = 4


def pack(start: Tensors, classifier: Tensors) -> Tensors:
    """Join the tensors of a released model and of its classifier, by prefixed names."""
    return join_parts({_BASE: start, _CLASSIFIER: classifier})


def propose(
    start: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw augmented samples (n, d) in [0, 1] of classes `labels`, not relabelled yet.

    Args:
        settings: `start`, a key of `STARTS`; `spread` and, optionally, `least_spread`: largest and smallest scale of
            the samples' deviation; `poses` and, optionally, `surfaces`: True to apply affine maps and textures.
    """
    images = _draw_scaled(start, settings, schema, labels, rng)
    planes = torch.from_numpy(images).view(-1, schema.channels, schema.height, schema.width)
    if settings["poses"]:
        planes = augment_affine(planes, random_affine_maps(len(labels), rng))
    if settings.get("surfaces", False):
        planes = augment_texture(planes, rng)
    return np.asarray(planes.flatten(1).numpy())


def _draw_scaled(
    start: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw samples (n, d), each at one of a few scales, chosen at random."""
    scales = np.unique(np.linspace(settings.get("least_spread", settings["spread"]), settings["spread"], _SCALES))
    images = np.empty((len(labels), schema.dimensions), dtype=np.float32)
    chosen = rng.integers(len(scales), size=len(labels))
    for number, scale in enumerate(scales):
        rows = np.flatnonzero(chosen == number)
        scaled = start | {"factors": start["factors"] * np.float32(scale)}
        images[rows] = STARTS[settings["start"]](scaled, {}, schema, labels[rows], rng)
    return images


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw samples (n, d) in [0, 1] that the classifier gives the requested labels."""
    classifier = unpack_classifier(tensors, schema)
    propose_of = partial(propose, select_part(tensors, _BASE), settings, schema, rng=rng)
    return fill_requests(labels, schema.dimensions, propose_of, classifier.predict)


def unpack_classifier(tensors: Tensors, schema: Schema) -> LastLayerClassifier:
    """Return the classifier inside the model."""
    return LastLayerClassifier.from_tensors(schema, select_part(tensors, _CLASSIFIER))
