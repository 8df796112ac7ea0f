"""The classes of images whose labels nobody names: in turn, or as frequent as was declared or released."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from datalens_service.base.arrays import Floats
from datalens_service.data.dataset import Labels
from datalens_service.models.generators.gaussian.pooled_gaussian import shrink_bands

ClassShares = tuple[float, ...]

_UNEQUAL: Final = 1.25
"""Ratio of the most frequent class to the mean of all, in released counts, from which draws follow them."""


def take_turns(n: int, shares: Sequence[float]) -> Labels:
    """Return labels (n,) whose beginnings, of any length, have the classes about as often as their shares say.

    The image number j of a class has its turn at (j + ½)/share, so with equal shares the classes come in order.
    """
    frequencies = np.asarray(shares, dtype=np.float64) / sum(shares)
    counts = np.where(frequencies > 0, np.ceil(n * frequencies) + 1, 0).astype(np.int64)
    labels = np.repeat(np.arange(len(counts)), counts)
    numbers = np.concatenate([np.arange(count) for count in counts])
    order = np.argsort((numbers + 0.5) / frequencies[labels], kind="stable")[:n]
    return np.asarray(labels[order], dtype=np.int64)


def estimate_shares(counts: Floats, stddev: float) -> ClassShares | None:
    """Estimate the shares of the classes from released noisy counts; None where all look about as frequent.

    Differences between counts shrink by what is known of their noise. A class that looks smaller than the noise counts
    as being as large.

    Args:
        counts: (classes,).
        stddev: Standard deviation of the noise of a count.
    """
    least = max(stddev, 1.0)
    mean = max(float(counts.mean()), least)
    away = shrink_bands((counts - mean)[None], np.array([stddev**2]), len(counts))[0]
    estimated = np.maximum(mean + away, least)
    if estimated.max() < _UNEQUAL * estimated.mean():
        return None
    return tuple((estimated / estimated.sum()).tolist())
