"""Released images as drawings: one row per class, and one row per image with what lies next to it."""

import base64
from collections.abc import Sequence
from typing import Final

import numpy as np

from datalens_service.data.dataset import Images
from datalens_service.data.export.png import encode_png, encode_public_png
from datalens_service.evaluation.report.drawing import WIDTH, Element, canvas, picture, text, xml
from datalens_service.evaluation.report.pictures import COLUMNS, NEIGHBOURS, Pictures

_LABEL: Final = 132
_TILE: Final = 54
_GAP: Final = 4
_LONGEST_LABEL: Final = 16


def sample_gallery(pictures: Pictures, class_names: Sequence[str]) -> str:
    """Ten released images of each class, one class per row."""
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
    """A released image of each class on the left, then the released images nearest to it."""
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
    """Height and width of a tile, in the image's own proportions."""
    height, width = images.shape[1:3]
    return _TILE * height / max(height, width), _TILE * width / max(height, width)


def _name(svg: Element, name: str, middle: float) -> None:
    short = name if len(name) <= _LONGEST_LABEL else f"{name[: _LONGEST_LABEL - 1]}…"
    text(svg, "label", _LABEL - 12, middle + 5, short, "end")


def _strip(
    svg: Element, pictures: Pictures, images: Images, left: float, top: float, size: tuple[float, float]
) -> None:
    """Images side by side, each a PNG that says what it is."""
    encode = encode_public_png if pictures.public else encode_png
    for place, image in enumerate(images):
        source = "data:image/png;base64," + base64.b64encode(encode(image)).decode("ascii")
        picture(svg, source, left + place * (size[1] + _GAP), top, size[1], size[0])
