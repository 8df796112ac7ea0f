"""How each class fares under one classifier. For the owner: counts and accuracies of a class are private."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datalens_service.data.dataset import Labels
from datalens_service.evaluation.measures import ClassFigure


def per_class(
    classifier: str,
    class_names: Sequence[str],
    labels: Labels,
    synthetic: Sequence[Labels],
    upper_bound: Sequence[Labels] | None,
) -> list[ClassFigure]:
    """One line per class.

    Args:
        labels: (m,) true labels of the test images.
        synthetic: Labels given after training on synthetic images, per seed.
        upper_bound: The same after training on real images, or None.
    """
    return [
        ClassFigure(
            classifier=classifier,
            class_name=name,
            test_images=int(np.count_nonzero(labels == index)),
            accuracy=_right(synthetic, labels, index),
            ceiling=None if upper_bound is None else _right(upper_bound, labels, index),
            taken_for=_mistaken(synthetic, labels, index, class_names),
        )
        for index, name in enumerate(class_names)
    ]


def _right(predictions: Sequence[Labels], labels: Labels, index: int) -> float | None:
    """Percent of the class's images that got its label, over all seeds."""
    members = labels == index
    if not members.any():
        return None
    return 100 * float(np.mean([predicted[members] == index for predicted in predictions]))


def _mistaken(predictions: Sequence[Labels], labels: Labels, index: int, names: Sequence[str]) -> str | None:
    """The other class that its images get most often; None if they never do."""
    given = np.concatenate([predicted[labels == index] for predicted in predictions])
    counts = np.bincount(given, minlength=len(names))
    counts[index] = 0
    return names[int(counts.argmax())] if counts.any() else None
