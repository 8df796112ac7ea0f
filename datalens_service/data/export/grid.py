"""A picture of samples: one row per class."""

from collections.abc import Callable
from typing import Final

import numpy as np

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export.png import encode_png

_TILE_SIDE: Final = 64
"""Images are enlarged by the largest whole factor that keeps them within this many pixels."""

_GAP: Final = 2
MOST_ROWS: Final = 50
_BACKGROUND: Final = 255


def sample_grid(
    images: Images, labels: Labels, schema: Schema, columns: int = 10, encode: Callable[[Images], bytes] = encode_png
) -> bytes:
    """PNG with the first `columns` images of every class, one class per row, at most 50 rows.

    Args:
        encode: Makes a PNG that says what the images are.
    """
    return encode(grid(images, labels, schema, columns))


def grid(images: Images, labels: Labels, schema: Schema, columns: int = 10) -> Images:
    """The same as pixels, uint8 (height, width, channels)."""
    factor = max(1, _TILE_SIDE // max(schema.height, schema.width))
    rows = min(schema.num_classes, MOST_ROWS)
    step = np.array([schema.height, schema.width]) * factor + _GAP
    height, width = step * (rows, columns) + _GAP
    canvas = np.full((height, width, schema.channels), _BACKGROUND, dtype=np.uint8)
    for row in range(rows):
        for column, index in enumerate(np.flatnonzero(labels == row)[:columns]):
            tile = images[index].repeat(factor, axis=0).repeat(factor, axis=1)
            top, left = step * (row, column) + _GAP
            canvas[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return canvas
