"""Pictures of released images for the report: samples of every class, and nearest neighbours.

Everything here is drawn from the generator: post-processing, free, and without a private image.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from datalens_service.data.dataset import Images, Labels
from datalens_service.data.export.png import choose_encoder
from datalens_service.models.generators.generator import Generator
from datalens_service.report.drawing import WIDTH, Element, canvas, picture, text, xml

COLUMNS: Final = 10
NEIGHBOURS: Final = 7
MOST_CLASSES: Final = 50
MOST_NEIGHBOUR_ROWS: Final = 10
_POOL: Final = 5_000
_BLOCK: Final = 256
"""Images that are compared at once."""


class NeighbourRow(NamedTuple):
    """One synthetic image and its nearest synthetic images."""

    label: int
    image: Images
    nearest: Images
    labels: Labels
    distances: tuple[float, ...]
    """Root mean square difference per pixel, in grey levels of 255."""


@dataclass(frozen=True)
class Pictures:
    """The released images that the report shows.

    Attributes:
        samples: uint8 (classes · COLUMNS, height, width, channels), class by class.
        neighbours: One row for each of the first classes.
    """

    samples: Images
    labels: Labels
    neighbours: tuple[NeighbourRow, ...]
    public: bool = False
    """True if these are public images, or parts of them."""

    @property
    def kind(self) -> str:
        return "public" if self.public else "synthetic"


def draw_pictures(generator: Generator, packed: int) -> Pictures:
    """Draw the pictures of a report.

    Args:
        generator: Released.
        packed: Number of images that are handed out with it; neighbours come from the first of them.
    """
    classes = generator.schema.num_classes
    labels = np.repeat(np.arange(min(classes, MOST_CLASSES)), COLUMNS)
    samples, _ = generator.sample(len(labels), labels=labels)
    images, given = generator.sample(max(min(packed, _POOL), classes))
    return Pictures(samples, labels, neighbours(images, given, min(classes, MOST_NEIGHBOUR_ROWS)), generator.verbatim)


def neighbours(images: Images, labels: Labels, rows: int) -> tuple[NeighbourRow, ...]:
    """Return the first image of each of the first `rows` classes, with the other images nearest to it in L2."""
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


_LABEL: Final = 132
_TILE: Final = 54
_GAP: Final = 4
_LONGEST_LABEL: Final = 16


def sample_gallery(pictures: Pictures, class_names: Sequence[str]) -> str:
    """Draw ten released images of each class, one class per row."""
    shown = [int(label) for label in np.unique(pictures.labels)]
    size = _tile(pictures.samples)
    step = size[0] + _GAP
    description = f"{COLUMNS} {pictures.kind} images for each of {len(shown)} classes"
    title = f"{pictures.kind.capitalize()} images, one row per class"
    svg = canvas("samples-drawing", step * len(shown), title, description)
    for row, label in enumerate(shown):
        _name(svg, class_names[label], row * step + size[0] / 2)
        _strip(svg, pictures, pictures.samples[pictures.labels == label], _LABEL, row * step, size)
    return xml(svg)


def neighbour_gallery(pictures: Pictures, class_names: Sequence[str]) -> str:
    """Draw a released image of each class on the left, then its nearest released images."""
    size = _tile(pictures.samples)
    step, apart = size[0] + _GAP, _LABEL + size[1] + 26
    height = 22 + step * len(pictures.neighbours)
    title = f"Nearest {pictures.kind} neighbours"
    svg = canvas("neighbours-drawing", height, title, "No private image is compared or shown")
    text(svg, "tick", _LABEL, 14, "image", "start")
    text(svg, "tick", apart, 14, f"its nearest neighbours among {pictures.kind} images", "start")
    text(svg, "tick", WIDTH, 14, "nearest differs by", "end")
    for row, neighbours in enumerate(pictures.neighbours):
        top = 22 + row * step
        _name(svg, class_names[neighbours.label], top + size[0] / 2)
        _strip(svg, pictures, neighbours.image[None], _LABEL, top, size)
        _strip(svg, pictures, neighbours.nearest[:NEIGHBOURS], apart, top, size)
        closest = f"{neighbours.distances[0]:.0f} of 255" if neighbours.distances else "alone"
        text(svg, "tick", WIDTH, top + size[0] / 2 + 5, closest, "end")
    return xml(svg)


def _tile(images: Images) -> tuple[float, float]:
    """Return height and width of a tile, in the image's own proportions."""
    height, width = images.shape[1:3]
    return _TILE * height / max(height, width), _TILE * width / max(height, width)


def _name(svg: Element, name: str, middle: float) -> None:
    short = name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…"
    text(svg, "label", _LABEL - 12, middle + 5, short, "end")


def _strip(
    svg: Element, pictures: Pictures, images: Images, left: float, top: float, size: tuple[float, float]
) -> None:
    """Add images side by side, each a PNG with a note that it is synthetic or public."""
    encode = choose_encoder(pictures.public)
    for place, image in enumerate(images):
        source = "data:image/png;base64," + base64.b64encode(encode(image)).decode("ascii")
        picture(svg, source, left + place * (size[1] + _GAP), top, size[1], size[0])
