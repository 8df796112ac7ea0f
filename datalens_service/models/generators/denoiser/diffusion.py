"""Samples of a denoiser, each for a request of the class that a released classifier sees in it.

A sample begins as noise, or as a noisy sample of the released model that training started from, and follows the
denoiser's deterministic path. All of it is post-processing of released numbers.
"""

from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from datalens_service.base.arrays import Floats32, Tensors
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.classifiers.last_layer import LastLayerClassifier
from datalens_service.models.generators import pool
from datalens_service.models.generators.denoiser.denoiser import Denoiser, follow_path, noise_schedule
from datalens_service.models.generators.denoiser.denoiser_shape import DEFAULT_GRID, DenoiserShape
from datalens_service.models.generators.gaussian import gaussian, guided, labelled, mixture
from datalens_service.models.generators.level_sets import rejection
from datalens_service.models.generators.requests import fill_requests
from datalens_service.models.released import join_parts, select_part

STARTS: Final = {
    "gaussian": gaussian.draw, "mixture": mixture.draw, "guided": guided.draw, "labelled": labelled.draw,
    "rejection": rejection.draw, "pool": pool.draw,
}  # fmt: skip
"""Starts of a denoiser: released models, or public images that private votes chose."""
PROPOSALS: Final = {"rejection": rejection.draw_proposals}
"""Starts by models that reject many of their samples, before they do."""

_DENOISER, _START = "denoiser.", "start."
_LARGEST_STDDEV: Final = 10.0
_EARLIER_END_STDDEV: Final = 0.02
"""The value for files of earlier versions, whose settings do not name it."""
_EARLIER_GUIDANCE_SCALE: Final = 1.0
"""The value for files of earlier versions, and of denoisers of public images, whose settings do not name it."""
_TRUST_IN_LABELLER: Final = 0.5
"""Weight of the classifier in labels of a start with soft labels: chosen on CIFAR-10."""
_ROWS: Final = 64
"""Images at once: their maps fit into a core's cache."""


class Start(NamedTuple):
    """The released model that training started from."""

    kind: str
    """Key of `STARTS`."""
    settings: dict[str, Any]
    tensors: Tensors


def pack(denoiser: Tensors, start: Tensors) -> Tensors:
    """Join the tensors of the network and of the released model that it started from, by prefixed names."""
    return join_parts({_DENOISER: denoiser, _START: start})


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw samples (n, d) in [0, 1] in which the classifier sees the requested classes, if the start has one.

    Args:
        settings: `width` and `blocks` of the denoiser, where they are not the usual ones its `largest_grid` and the
            `class_names` that it learned; `start`, kind and settings of the released model; `path`, steps
            of the sampler; `start_stddev`, noise on samples of the start, or None to begin with noise alone;
            `start_proposals`, True if these samples are taken before any is rejected; `end_stddev`, noise from which
            the last step goes to an image at once; `guidance_scale` of `follow_path`.

    Raises:
        InvalidInput: The tensors do not fit the settings.
    """
    start = _unpack_start(tensors, settings)
    network = _load(select_part(tensors, _DENOISER), settings, schema)
    propose = partial(_propose, network, start, settings, rng=rng)
    classifier = load_labeller(start, schema)
    if classifier is None:
        return propose(labels)
    return fill_requests(labels, schema.dimensions, propose, partial(_predict, classifier, schema))


def label_softly(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, images: Images, labels: Labels
) -> Floats32:
    """Return labels (n, classes) of a start with soft labels.

    Arguments are those of its own `label_softly`, and `settings` those of `draw`.
    """
    start = _unpack_start(tensors, settings)
    return labelled.label_softly(start.tensors, start.settings, schema, images, labels, _TRUST_IN_LABELLER)


def _unpack_start(tensors: Tensors, settings: dict[str, Any]) -> Start:
    return Start(settings["start"]["kind"], settings["start"]["settings"], select_part(tensors, _START))


def load_labeller(start: Start, schema: Schema) -> Classifier | LastLayerClassifier | None:
    """Return the classifier inside a released model, or None."""
    if start.kind == "rejection":
        return rejection.unpack_classifier(start.tensors, start.settings, schema)
    return guided.unpack_classifier(start.tensors, schema) if start.kind == "guided" else None


def _propose(
    network: Denoiser, start: Start, settings: dict[str, Any], labels: Labels, *, rng: np.random.Generator
) -> Floats32:
    """Draw samples (n, d) in [0, 1] of classes (n,)."""
    schema, start_stddev = network.shape.schema, settings["start_stddev"]
    largest, images = _LARGEST_STDDEV, np.zeros((len(labels), schema.dimensions), dtype=np.float32)
    if start_stddev is not None:
        largest = start_stddev
        starts = STARTS | PROPOSALS if settings.get("start_proposals", False) else STARTS
        images = starts[start.kind](start.tensors, start.settings, schema, labels, rng) * 2 - 1
    noise = rng.standard_normal(images.shape, dtype=np.float32)
    noisy = torch.from_numpy(images + np.float32(largest) * noise)
    noisy = noisy.view(-1, schema.channels, schema.height, schema.width)
    # A denoiser that learned from images without labels knows a single class.
    known = torch.from_numpy(labels).clamp(max=schema.num_classes - 1)
    one_hot = functional.one_hot(known, schema.num_classes).to(torch.float32)
    schedule = noise_schedule(largest, settings.get("end_stddev", _EARLIER_END_STDDEV), settings["path"])
    guidance_scale = settings.get("guidance_scale", _EARLIER_GUIDANCE_SCALE)
    parts = [
        follow_path(network, images, classes, schedule, guidance_scale)
        for images, classes in zip(torch.split(noisy, _ROWS), torch.split(one_hot, _ROWS), strict=True)
    ]
    pixels = (torch.cat(parts).flatten(1) + 1) / 2
    return np.asarray(pixels.clamp(0, 1).numpy())


def _predict(classifier: Classifier | LastLayerClassifier, schema: Schema, images: Floats32) -> Labels:
    """Predict classes (n,) of images (n, d)."""
    if isinstance(classifier, LastLayerClassifier):
        return classifier.predict(images)
    return np.asarray(classifier.predict(_as_bytes(images, schema)).argmax(axis=1), dtype=np.int64)


def _as_bytes(images: Floats32, schema: Schema) -> Images:
    planes = images.reshape(-1, schema.channels, schema.height, schema.width)
    return np.rint(planes * 255).astype(np.uint8).transpose(0, 2, 3, 1)


def _load(tensors: Tensors, settings: dict[str, Any], schema: Schema) -> Denoiser:
    schema = schema.model_copy(update={"class_names": tuple(settings.get("class_names", schema.class_names))})
    grid = settings.get("largest_grid", DEFAULT_GRID)
    network = Denoiser(DenoiserShape(schema, settings["width"], settings["blocks"], grid))
    try:
        network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in tensors.items()})
    except RuntimeError:
        raise InvalidInput("The generator's tensors do not fit its settings.") from None
    # Maps side by side in memory: convolutions of a core take two thirds of the time.
    return network.eval().to(memory_format=torch.channels_last)
