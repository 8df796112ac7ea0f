"""Samples of pooled moments with a texture over them, and soft labels that a released classifier helps to give.

A classifier of records sees in a sample what a Gaussian of its class did not know. Labels between classes teach more
than either alone (Hinton, Vinyals and Dean 2015, "Distilling the knowledge in a neural network").
"""

from typing import Any, Final

import numpy as np
import torch

from datalens_service.base.arrays import Floats32, Tensors
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators.augmentation import augment_texture
from datalens_service.models.generators.gaussian import gaussian
from datalens_service.models.released import join_parts, select_part

_START: Final = "start."
_CLASSIFIER: Final = "classifier."
_TRUST: Final = 0.75
"""Weight of the classifier's probabilities; the class that a sample was drawn for has the rest."""
_TEMPERATURE: Final = 2.0
"""Divides the logarithms of probabilities."""


def pack(start: Tensors, classifier: Tensors) -> Tensors:
    """Join the tensors of both released models, by prefixed names."""
    return join_parts({_START: start, _CLASSIFIER: classifier})


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats32:
    """Draw samples (n, d) of the Gaussians of `labels`, some with another contrast, some with a texture.

    Args:
        settings: Settings of the classifier, which are not used.
    """
    images = gaussian.draw(select_part(tensors, _START), {}, schema, labels, rng)
    planes = torch.from_numpy(images).view(-1, schema.channels, schema.height, schema.width)
    return np.asarray(augment_texture(planes, rng).flatten(1).numpy())


def label_softly(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, images: Images, labels: Labels, trust: float = _TRUST
) -> Floats32:
    """Return the classifier's tempered probabilities, with the rest for the class an image was drawn for, (n, classes).

    Args:
        settings: The settings of `draw`.
        images: uint8 (n, height, width, channels), drawn for `labels`.
        trust: Weight of the classifier's probabilities.
    """
    classifier = Classifier(schema, settings["classifier"], select_part(tensors, _CLASSIFIER))
    likely = classifier.predict(images).astype(np.float64) ** (1 / _TEMPERATURE)
    likely /= likely.sum(axis=1, keepdims=True)
    drawn = np.eye(schema.num_classes)[labels]
    return np.asarray(trust * likely + (1 - trust) * drawn, dtype=np.float32)
