"""A guided generator: varied samples of a released model, each with the label that a private classifier gives it.

Samples of a Gaussian say little about where classes meet. So they are drawn wider than records lie, and seen in
changed poses and surfaces; the labeller, which has learnt from records, says what each of them shows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.classifier import Labeller
from datalens_service.models.generators import gaussian, mixture
from datalens_service.models.generators.augmentation import poses, resurfaced, warped

Floats = NDArray[np.float32]
Tensors = dict[str, Floats]

STARTS: Final = {"gaussian": gaussian.draw, "mixture": mixture.draw}
"""What samples are drawn from."""

_START, _LABELLER = "start.", "labeller."
_WIDTHS: Final = 4
# After these many rounds, places whose class the labeller never names keep samples of their own class. A class that it
# names for a sixth of its samples needs about twenty.
_ROUNDS: Final = 32


def pack(start: Tensors, labeller: Tensors) -> Tensors:
    """The tensors of a released model and of a labeller under one roof."""
    named = {_START + name: value for name, value in start.items()}
    return named | {_LABELLER + name: value for name, value in labeller.items()}


def propose(
    start: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats:
    """Samples of classes `labels` before anyone looked at them.

    Args:
        start: Tensors of the released model.
        settings: `start`, a key of `STARTS`; `spread` and, if it is there, `least_spread`, how much wider than the
            model they lie at most and at least; `poses` and, if it is there, `surfaces`, whether to change them.
        schema: Of the images.
        labels: (n,).
        rng: Of samples and of how they change.

    Returns:
        float32 (n, d) in [0, 1].
    """
    images = _widened(start, settings, schema, labels, rng)
    planes = torch.from_numpy(images).view(-1, schema.channels, schema.height, schema.width)
    if settings["poses"]:
        planes = warped(planes, poses(len(labels), rng))
    if settings.get("surfaces", False):
        planes = resurfaced(planes, rng)
    return np.asarray(planes.flatten(1).numpy())


def _widened(
    start: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats:
    """Samples (n, d), each of one of a few widths, at random; a single width draws nothing."""
    widths = np.unique(np.linspace(settings.get("least_spread", settings["spread"]), settings["spread"], _WIDTHS))
    images = np.empty((len(labels), schema.dimensions), dtype=np.float32)
    chosen = rng.integers(len(widths), size=len(labels))
    for number, width in enumerate(widths):
        rows = np.flatnonzero(chosen == number)
        wider = start | {"factors": start["factors"] * np.float32(width)}
        images[rows] = STARTS[settings["start"]](wider, {}, schema, labels[rows], rng)
    return images


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats:
    """Samples that the labeller gives the wanted labels.

    Args:
        tensors: As `pack` returned them.
        settings: As for `propose`.
        schema: Of the images.
        labels: (n,) wanted.
        rng: Of all that is random.

    Returns:
        float32 (n, d) in [0, 1].
    """
    start, weights = _part(tensors, _START), _part(tensors, _LABELLER)
    labeller = Labeller.from_tensors(schema, weights)
    images = np.empty((len(labels), schema.dimensions), dtype=np.float32)
    places = np.arange(len(labels))
    for _ in range(_ROUNDS):
        if not len(places):
            break
        samples = propose(start, settings, schema, labels[places], rng)
        images[places] = samples
        rows, filled = _matched(labeller.label(samples), labels[places])
        images[places[filled]] = samples[rows]
        places = np.delete(places, filled)
    return images


def _matched(given: Labels, wanted: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Samples by their labels to places by their wishes, first come first served: (rows, places), equally long."""
    rows, places = [], []
    for label in np.unique(wanted):
        offered, open_places = np.flatnonzero(given == label), np.flatnonzero(wanted == label)
        count = min(len(offered), len(open_places))
        rows.append(offered[:count])
        places.append(open_places[:count])
    return np.concatenate(rows), np.concatenate(places)


def _part(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
