"""Samples for requested classes, as a classifier sees them: it decides which request a sample fills."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.arrays import Floats32
from datalens_service.data.dataset import Labels

# After so many rounds, images of a class that the classifier never predicts stay samples of that class. A class that
# it predicts for a sixth of its samples needs about twenty.
_ROUNDS: Final = 32


def fill_requests(
    labels: Labels, dimensions: int, propose: Callable[[Labels], Floats32], predict: Callable[[Floats32], Labels]
) -> Floats32:
    """Return samples (n, d), proposed until the classifier has seen every requested class often enough.

    Args:
        propose: Draws samples (m, d) of classes (m,).
        predict: Predicts classes (m,) of samples (m, d).
    """
    images = np.empty((len(labels), dimensions), dtype=np.float32)
    unfilled = np.arange(len(labels))
    for _ in range(_ROUNDS):
        if not len(unfilled):
            break
        samples = propose(labels[unfilled])
        images[unfilled] = samples
        rows, filled = match_requests(predict(samples), labels[unfilled])
        images[unfilled[filled]] = samples[rows]
        unfilled = np.delete(unfilled, filled)
    return images


def match_requests(predicted: Labels, requested: Labels) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Match samples with requests of their predicted class: (rows of samples, rows of requests), equally long."""
    samples, requests = [], []
    for label in np.unique(requested):
        of_class, open_requests = np.flatnonzero(predicted == label), np.flatnonzero(requested == label)
        count = min(len(of_class), len(open_requests))
        samples.append(of_class[:count])
        requests.append(open_requests[:count])
    return np.concatenate(samples), np.concatenate(requests)
