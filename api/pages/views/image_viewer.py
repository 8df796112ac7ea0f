"""Released images of one class, a page at a time."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Schema
from datalens_service.data.export import sample_grid
from datalens_service.data.export.content_credentials import ContentCredentials
from datalens_service.data.export.png import choose_encoder
from datalens_service.data.export.writer import is_verbatim

COLUMNS: Final = 10
IMAGES_PER_PAGE: Final = COLUMNS * COLUMNS
_LARGE_SIDE: Final = 512
"""A single image is enlarged by the largest whole factor that keeps it within this many pixels."""
MOST_BYTES: Final = 2**28
"""Size of all images together, which are read for each page; larger sets have to be downloaded."""


def fits(schema: Schema, images: int) -> bool:
    """Return True if so many images can be paged through."""
    return schema.dimensions * images <= MOST_BYTES


def count_drawn(schema: Schema) -> int:
    """Return how many images are drawn anew at once: a page of each class."""
    return IMAGES_PER_PAGE * schema.num_classes


def draw_page(
    path: Path, schema: Schema, label: int, page: int, credentials: ContentCredentials | None = None
) -> bytes:
    """PNG with the images number 100·page and following of a class.

    Args:
        page: From 0; behind the last one all places are blank.

    Raises:
        InvalidInput: There is no such class.
    """
    shown = _of_class(path, schema, label)[page * IMAGES_PER_PAGE : (page + 1) * IMAGES_PER_PAGE]
    encode = _encoder(path, credentials)
    # A row of the picture stands where a class does in a grid of samples.
    lines = schema.model_copy(update={"class_names": tuple(map(str, range(COLUMNS)))})
    return sample_grid(shown, np.arange(len(shown), dtype=np.int64) // COLUMNS, lines, COLUMNS, encode)


def draw_image(
    path: Path, schema: Schema, label: int, number: int, credentials: ContentCredentials | None = None
) -> bytes:
    """PNG with one image of a class, enlarged by a whole factor.

    Raises:
        InvalidInput: There is no such image.
    """
    images = _of_class(path, schema, label)
    if not 0 <= number < len(images):
        raise InvalidInput("The class has no such image.")
    factor = max(1, _LARGE_SIDE // max(schema.height, schema.width))
    return _encoder(path, credentials)(images[number].repeat(factor, axis=0).repeat(factor, axis=1))


def _encoder(path: Path, credentials: ContentCredentials | None) -> Callable[[Images], bytes]:
    """Makes a PNG that says what packed images are."""
    with np.load(path, allow_pickle=False) as stock:
        return choose_encoder(is_verbatim(json.loads(str(stock["provenance"]))), credentials)


def _of_class(path: Path, schema: Schema, label: int) -> Images:
    if not 0 <= label < schema.num_classes:
        raise InvalidInput(f"The class must lie between 0 and {schema.num_classes - 1}.")
    with np.load(path, allow_pickle=False) as stock:
        images, labels = stock["train_images"], stock["train_labels"].reshape(-1)
    rows = np.flatnonzero(labels == label)
    return np.asarray(images[rows]).reshape(-1, schema.height, schema.width, schema.channels)


def count_packed(path: Path, schema: Schema) -> list[int]:
    """Count the packed images of each class."""
    with np.load(path, allow_pickle=False) as stock:
        labels = stock["train_labels"].reshape(-1)
    return [int(count) for count in np.bincount(labels, minlength=schema.num_classes)]


def images_on_page(of_class: int, page: int) -> int:
    """Return how many of so many images of a class a page shows."""
    return min(IMAGES_PER_PAGE, max(0, of_class - page * IMAGES_PER_PAGE))


def pages_of_class(of_class: int) -> int:
    """Return how many pages so many images of a class fill; at least one."""
    return max(1, math.ceil(of_class / IMAGES_PER_PAGE))
