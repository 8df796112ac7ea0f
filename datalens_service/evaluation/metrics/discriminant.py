"""Linear discriminant analysis: what one matrix learns, of pixels or of features of a public encoder."""

from typing import Final

import numpy as np

from datalens_service.base.arrays import Floats
from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.evaluation.metrics.downstream import Targets
from datalens_service.evaluation.settings import MOST_ENCODED

SIDE: Final = 16
_TOWARDS_EVEN: Final = 0.05
"""Share of the covariance that is taken as alike in all directions."""


def label_by_pixels(images: Images, targets: Targets, tested: Images, num_classes: int) -> Labels:
    """Labels (m,) of `tested` by the discriminant of images, both averaged down to 16 pixels a side."""
    return discriminate(shrink(images, SIDE), targets, shrink(tested, SIDE), num_classes)


def label_by_features(images: Images, targets: Targets, tested: Images, schema: Schema) -> Labels:
    """Labels (m,) of `tested` by the discriminant of features of imagenet-lite0, of the first 5,000 images.

    Raises:
        WorkerUnavailable: The encoder takes no such images, or its weights are not installed.
    """
    from datalens_service.models.encoders import ImagenetLite0

    encoder = ImagenetLite0()
    try:
        encoder.check(schema)
    except InvalidSpec as error:
        raise WorkerUnavailable(error.detail) from error
    network = encoder.load(schema)
    learned = network.encode(images[:MOST_ENCODED]).astype(np.float64)
    return discriminate(learned, targets[:MOST_ENCODED], network.encode(tested).astype(np.float64), schema.num_classes)


def discriminate(features: Floats, targets: Targets, tested: Floats, num_classes: int) -> Labels:
    """Labels (m,) of rows of `tested`; classes are alike before they are seen, and one without rows is never named.

    Args:
        features: (n, d).
        targets: Labels (n,), or soft labels (n, classes).
    """
    shares = np.eye(num_classes)[targets] if targets.ndim == 1 else targets.astype(np.float64)
    weights = shares.sum(axis=0)
    means = shares.T @ features / np.maximum(weights, 1e-9)[:, None]
    within = features - shares @ means
    covariance = within.T @ within / len(features)
    even = max(np.trace(covariance) / len(covariance), 1e-9)
    covariance = (1 - _TOWARDS_EVEN) * covariance + _TOWARDS_EVEN * even * np.eye(len(covariance))
    directions = np.linalg.solve(covariance, means.T)
    offsets = np.where(weights > 0, -(means.T * directions).sum(axis=0) / 2, -np.inf)
    labels: Labels = (tested @ directions + offsets).argmax(axis=1)
    return labels


def shrink(images: Images, side: int) -> Floats:
    """Images (n, height, width, channels) averaged down to sides of at most `side`, as vectors (n, d)."""
    import torch

    height, width = (min(side, given) for given in images.shape[1:3])
    pixels = torch.from_numpy(np.require(images, requirements=["C", "W"])).permute(0, 3, 1, 2).double()
    vectors: Floats = torch.nn.functional.adaptive_avg_pool2d(pixels, (height, width)).flatten(1).numpy()
    return vectors
