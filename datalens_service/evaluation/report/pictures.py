"""Pictures of released images for the report: samples of every class, and what lies next to what.

Everything here is drawn from the generator: post-processing, free, and without a private image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from datalens_service.data.dataset import Images, Labels

if TYPE_CHECKING:
    from datalens_service.models.generators.generator import Generator

COLUMNS: Final = 10
NEIGHBOURS: Final = 7
MOST_CLASSES: Final = 50
MOST_NEIGHBOUR_ROWS: Final = 10
_POOL: Final = 5_000
_BLOCK: Final = 256
"""Images that are compared at once."""


class NeighbourRow(NamedTuple):
    """One synthetic image and the synthetic images next to it."""

    label: int
    image: Images
    nearest: Images
    labels: Labels
    distances: tuple[float, ...]
    """Root mean square difference per pixel, in grey levels of 255."""


@dataclass(frozen=True)
class Pictures:
    """What the report shows of the released images.

    Attributes:
        samples: uint8 (classes · COLUMNS, height, width, channels), class by class.
        neighbours: One row for each of the first classes.
    """

    samples: Images
    labels: Labels
    neighbours: tuple[NeighbourRow, ...]
    public: bool = False
    """Whether these are public images as they are."""

    @property
    def kind(self) -> str:
        """In a word."""
        return "public" if self.public else "synthetic"


def draw_pictures(generator: Generator, packed: int) -> Pictures:
    """Draw what the report shows.

    Args:
        generator: Released.
        packed: Images that are handed out with it; neighbours are looked for among the first of them.
    """
    classes = generator.schema.num_classes
    labels = np.repeat(np.arange(min(classes, MOST_CLASSES)), COLUMNS)
    samples, _ = generator.sample(len(labels), labels=labels)
    images, given = generator.sample(max(min(packed, _POOL), classes))
    return Pictures(samples, labels, neighbours(images, given, min(classes, MOST_NEIGHBOUR_ROWS)), generator.verbatim)


def neighbours(images: Images, labels: Labels, rows: int) -> tuple[NeighbourRow, ...]:
    """The first image of each of the first `rows` classes, with the others that lie nearest to it in L2."""
    firsts = [np.flatnonzero(labels == label)[:1] for label in range(rows)]
    return tuple(_row(images, labels, int(first[0])) for first in firsts if first.size)


def _row(images: Images, labels: Labels, index: int) -> NeighbourRow:
    pixels = images.reshape(len(images), -1)
    blocks = np.split(pixels, range(_BLOCK, len(pixels), _BLOCK))
    squared = np.concatenate([((block - pixels[index].astype(np.float32)) ** 2).mean(axis=1) for block in blocks])
    squared[index] = np.inf
    order = np.argsort(squared, kind="stable")[: min(NEIGHBOURS, len(images) - 1)]
    distances = tuple(float(np.sqrt(squared[other])) for other in order)
    return NeighbourRow(int(labels[index]), images[index], images[order], labels[order], distances)
