"""Which class is taken for which: counts over test images, so private like them. For the owner alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from datalens_service.data.dataset import Labels
from datalens_service.evaluation.measures import ConfusionTable

MOST_CLASSES: Final = 100
"""A table of more is no help to anybody."""


def confusion_table(labels: Labels, predicted: Labels, class_names: Sequence[str], reference: str) -> ConfusionTable:
    """Count the test images of each class by the class they were given.

    Args:
        labels: (m,) true labels.
        predicted: (m,) labels that were given.
        class_names: Declared classes; only the first 100 are counted.
        reference: What the images are, for the reader.
    """
    classes = min(len(class_names), MOST_CLASSES)
    counts = np.zeros((classes, classes), dtype=np.int64)
    inside = (labels < classes) & (predicted < classes)
    np.add.at(counts, (labels[inside], predicted[inside]), 1)
    return ConfusionTable(
        class_names=tuple(class_names[:classes]),
        counts=tuple(tuple(int(count) for count in row) for row in counts),
        reference=reference,
    )
