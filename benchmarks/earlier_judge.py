"""The standard CNN of versions up to 1.0.0, that of the published protocol: it judges what compares with papers."""

from __future__ import annotations

import numpy as np

from datalens_service.data.dataset import Dataset, Images, Labels, Split
from datalens_service.evaluation.metrics.downstream import labelled
from datalens_service.evaluation.metrics.extractors import train_small

_BATCH = 256


def label_earlier(images: Images, labels: Labels, real: Images, num_classes: int, epochs: int, seed: int) -> Labels:
    """Labels of real images after so many epochs on `images`."""
    learned = Split(images, labels)
    network = train_small(learned, num_classes, epochs=epochs, batch_size=_BATCH, seed=seed, device="cpu")
    return labelled(network, real, "cpu")


def earlier_accuracy(images: Images, labels: Labels, data: Dataset, epochs: int, seed: int) -> float:
    """Percent of real test images that are labelled rightly after so many epochs on `images`."""
    if data.test is None:
        raise SystemExit("the data set has no test split")
    given = label_earlier(images, labels, data.test.images, data.schema.num_classes, epochs, seed)
    return 100 * float(np.mean(given == data.test.labels))
