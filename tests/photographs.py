"""Colour images: patches of the two photographs that scikit-learn brings along.

`china.jpg` by danielbuechele and `flower.jpg` by vultilion, both CC BY 2.0 (flickr.com). Each class is a part of a
picture. A patch is cut out at random, between one and two times as large as it is handed out, and may be mirrored.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_image

from datalens_service.data.dataset import Dataset, Schema, Split

_LARGEST_CUT: Final = 2.0


class Part(NamedTuple):
    """A rectangle of a photograph, in pixels."""

    photograph: str
    left: int
    top: int
    right: int
    bottom: int


PARTS: Final = {
    "temple": Part("china.jpg", 60, 40, 340, 390),
    "trees": Part("china.jpg", 340, 280, 560, 427),
    "sky": Part("china.jpg", 330, 0, 640, 230),
    "petals": Part("flower.jpg", 170, 85, 445, 355),
    "leaves": Part("flower.jpg", 0, 0, 230, 300),
}


def photographs(side: int, count: int, tests: int) -> Dataset:
    """Patches of side × side pixels in colour.

    Args:
        side: Up to 96.
        count: Training patches, a fifth of them of each class.
        tests: Test patches.
    """
    schema = Schema(channels=3, height=side, width=side, class_names=tuple(PARTS), num_units=count)
    rng = np.random.default_rng(0)
    return Dataset(
        schema, _cut(side, count, rng), _cut(side, tests, rng), partition_key=b"photographs".ljust(32, b"\0")
    )


def _cut(side: int, count: int, rng: np.random.Generator) -> Split:
    parts = [_open(part) for part in PARTS.values()]
    labels = np.arange(count, dtype=np.int64) % len(parts)
    return Split(np.stack([_patch(parts[label], side, rng) for label in labels]), labels)


def _open(part: Part) -> Image.Image:
    return Image.fromarray(load_sample_image(part.photograph)).crop(part[1:])


def _patch(picture: Image.Image, side: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    largest = min(_LARGEST_CUT * side, *picture.size)
    size = rng.uniform(side, largest)
    left, top = (rng.uniform(0, length - size) for length in picture.size)
    patch = np.asarray(picture.resize((side, side), Image.Resampling.BOX, (left, top, left + size, top + size)))
    return patch[:, ::-1] if rng.integers(2) else patch
