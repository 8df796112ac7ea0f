"""Judge 1, the standard CNN of versions up to 1.0.0 and of the published protocol, for what compares with papers."""

from __future__ import annotations

import numpy as np

from benchmarks.environment import require_test_split
from datalens_service.data.dataset import Dataset, Images, Labels, Split
from datalens_service.evaluation.metrics.downstream import label_images
from datalens_service.evaluation.metrics.extractors import train_small

_BATCH = 256


def earlier_accuracy(images: Images, labels: Labels, data: Dataset, epochs: int, seed: int) -> float:
    """Percent of real test images that are labelled rightly after so many epochs on `images`."""
    classes, learned, test = data.schema.num_classes, Split(images, labels), require_test_split(data)
    network = train_small(learned, classes, epochs=epochs, batch_size=_BATCH, seed=seed, device="cpu")
    return 100 * float(np.mean(label_images(network, test.images, "cpu") == test.labels))
