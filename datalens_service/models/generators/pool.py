"""Public images as they are: what is learnt from private records is which of them stand for which class.

An image of a class is drawn in proportion to its weight in that class, and it has a soft label: how likely it is of
every class.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Labels, Schema

Floats = NDArray[np.float32]
Tensors = dict[str, NDArray[Any]]

_WHITE: Final = np.float32(255)


def pack(images: Images, weights: Floats, soft_labels: Floats) -> Tensors:
    """The tensors of a model: images that stand for no class are left out.

    Args:
        images: uint8 (n, height, width, channels).
        weights: (n, classes), at least 0, with an image for every class.
        soft_labels: (n, classes), rows that add up to 1.
    """
    used = weights.sum(axis=1) > 0
    shares = {"weights": weights, "soft_labels": soft_labels}
    kept = {name: value[used].astype(np.float32) for name, value in shares.items()}
    return {"images": np.ascontiguousarray(images[used]), **kept}


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> Floats:
    """Images (n, d) in [0, 1] of the classes asked for."""
    images = tensors["images"][choose(tensors, labels, rng)]
    return np.asarray(images.transpose(0, 3, 1, 2).reshape(len(labels), -1) / _WHITE, dtype=np.float32)


def draw_soft_labels(tensors: Tensors, labels: Labels, rng: np.random.Generator) -> Floats:
    """(n, classes) soft labels of the images that `draw` returns for the same labels and `rng`."""
    return np.asarray(tensors["soft_labels"][choose(tensors, labels, rng)])


def choose(tensors: Tensors, labels: Labels, rng: np.random.Generator) -> NDArray[np.int64]:
    """(n,) rows of images in proportion to their weights in the classes asked for."""
    rows = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        requests = np.flatnonzero(labels == label)
        rows[requests] = _spread(tensors["weights"][:, label].astype(np.float64), len(requests), rng)
    return rows


def _spread(weights: NDArray[np.float64], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """So many rows at equal distances along all weights: none comes twice whose share is below one in `count`."""
    order = rng.permutation(len(weights))
    ends = np.cumsum(weights[order])
    places = (np.arange(count) + rng.random()) / count * ends[-1]
    return np.asarray(rng.permutation(order[np.searchsorted(ends, places, side="right").clip(max=len(order) - 1)]))
