"""Samples of shapes, accepted as often as records look like them, with the class that a released classifier sees.

A sample's score is its tilt (`tilting`), less the logarithm of how far its outline moves when it is encoded again, per
ink: the first says how much more often records look like this than samples do, the second how well it is an image.
The tilt sees the features of the classifier, and pieces and holes of the ink.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import label

from datalens_service.base.arrays import Floats32, Tensors
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators.level_sets import shapes
from datalens_service.models.generators.level_sets.level_sets import LevelSets
from datalens_service.models.generators.requests import match_requests
from datalens_service.models.released import join_parts, select_part

TOPOLOGY_NUMBERS: Final = 6
_MOST_PIECES, _MOST_HOLES = 3, 2
# Ink touches at corners, and so ground does not.
_TOUCHING: Final = np.ones((3, 3))


def topology(images: Images, level: float) -> NDArray[np.float32]:
    """Mark one, two or more pieces and no, one or more holes by a 1 each, (n, 6).

    Args:
        images: Bytes (n, height, width, channels).
        level: Brightness, of 1, from which a pixel is ink.
    """
    numbers = np.zeros((len(images), TOPOLOGY_NUMBERS), dtype=np.float32)
    for row, image in enumerate(images):
        pieces, holes = _count(image.max(axis=2) > level * 255)
        numbers[row, min(max(pieces, 1), _MOST_PIECES) - 1] = 1
        numbers[row, _MOST_PIECES + min(holes, _MOST_HOLES)] = 1
    return numbers


def _count(ink: NDArray[np.bool_]) -> tuple[int, int]:
    """Count the pieces of ink, and the pieces of ground that do not reach the rim."""
    ground = np.pad(~ink, 1, constant_values=True)
    return int(label(ink, _TOUCHING)[1]), int(label(ground)[1]) - 1


_START: Final = "start."
_CLASSIFIER: Final = "classifier."
# With a seventh of the samples accepted, one of three million requests is left over and takes any sample of its class.
_ROUNDS: Final = 96
_LEAST_ERROR: Final = 1e-6
_REJECTED: Final = -1


@dataclass(frozen=True)
class Proposals:
    """Samples before any is rejected.

    Attributes:
        images: float32 (n, d) in [0, 1].
        errors: (n,) squared distances by which their fields move when they are encoded again, per pixel of ink and one.
        features: float32 (n, q) as `describe` returns them.
        predicted: (n,) classes.
    """

    images: Floats32
    errors: NDArray[np.float64]
    features: Floats32
    predicted: Labels

    def scores(self, weights: Floats32) -> NDArray[np.float64]:
        """Score samples (n,) as those of their predicted classes, with weights (classes, q)."""
        tilt = np.einsum("ij,ij->i", self.features, weights[self.predicted])
        return np.asarray(tilt - np.log(self.errors + _LEAST_ERROR))


def describe(features: Floats32, images: Images, level: float) -> Floats32:
    """Return the numbers that a tilt sees, at most 1 long: features, and topology with as much weight, (n, q + 6).

    Args:
        features: (n, q) of length 1 at most.
        images: uint8 (n, height, width, channels).
        level: Brightness of ink.
    """
    return np.concatenate([features / np.float32(2**0.5), topology(images, level) / 2], axis=1)


def pack(start: Tensors, classifier: Tensors, weights: Floats32, levels: Floats32) -> Tensors:
    """Join the tensors of both released models, by prefixed names, with the tilt (classes, q) and levels (classes,)."""
    named = join_parts({_START: start, _CLASSIFIER: classifier})
    return named | {"tilt": weights.astype(np.float32), "levels": levels.astype(np.float32)}


def propose(
    start: Tensors, settings: dict[str, Any], classifier: Classifier, labels: Labels, rng: np.random.Generator
) -> Proposals:
    """Draw samples of shapes, with the classifier's view of them."""
    schema = classifier.schema
    codec = LevelSets(schema, settings["content"])
    images, moved = shapes.propose(codec, start, settings["spread"], labels, rng)
    planes = np.rint(images.reshape(-1, schema.channels, schema.height, schema.width) * 255).astype(np.uint8)
    pictures = planes.transpose(0, 2, 3, 1)
    features, probabilities = classifier.predict_with_features(pictures)
    described = describe(features, pictures, codec.ink_level)
    errors = moved / (1 + images.sum(axis=1) / schema.channels)
    return Proposals(images, errors, described, np.asarray(probabilities.argmax(axis=1), dtype=np.int64))


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw samples (n, d) in proportion to their weights, each for a request of the class that the classifier sees.

    Args:
        settings: `start`, of the shapes; `classifier`, of the classifier.
    """
    start, classifier = select_part(tensors, _START), unpack_classifier(tensors, settings, schema)
    images = np.empty((len(labels), schema.dimensions), dtype=np.float32)
    unfilled = np.arange(len(labels))
    for _ in range(_ROUNDS):
        if not len(unfilled):
            break
        proposals = propose(start, settings["start"], classifier, labels[unfilled], rng)
        images[unfilled] = proposals.images
        classes = np.where(accept(proposals, tensors, rng), proposals.predicted, _REJECTED)
        rows, filled = match_requests(classes, labels[unfilled])
        images[unfilled[filled]] = proposals.images[rows]
        unfilled = np.delete(unfilled, filled)
    return images


def draw_proposals(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw samples of shapes of the requested classes, none rejected; arguments and result as of `draw`."""
    codec, start = LevelSets(schema, settings["start"]["content"]), select_part(tensors, _START)
    return codec.decode(shapes.draw_vectors(codec, start, settings["start"]["spread"], labels, rng))


def unpack_classifier(tensors: Tensors, settings: dict[str, Any], schema: Schema) -> Classifier:
    """Return the classifier inside the model; arguments as of `draw`."""
    return Classifier(schema, settings["classifier"], select_part(tensors, _CLASSIFIER))


def accept(proposals: Proposals, tensors: Tensors, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Decide by chance, in proportion to their weights, which samples are accepted, bool (n,)."""
    excess = proposals.scores(tensors["tilt"]) - tensors["levels"][proposals.predicted]
    return np.asarray(rng.random(len(excess)) < np.exp(np.minimum(0.0, excess)))
