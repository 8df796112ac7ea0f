"""PNG files that say they are synthetic."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from PIL import Image, PngImagePlugin

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export.provenance import XMP
from datalens_service.errors import InvalidInput

PRIVATE: Final = "Private records. For their owner only; not to be passed on."

_CHANNELS: Final = (1, 3)


def encode_png(image: Images) -> bytes:
    """One image as PNG, with XMP that marks it as made by a trained model.

    Args:
        image: uint8 (height, width, 1 or 3).

    Raises:
        InvalidInput: The image is neither grey nor RGB.
    """
    marking = PngImagePlugin.PngInfo()
    marking.add_itxt("XML:com.adobe.xmp", XMP)
    return _encoded(image, marking)


def encode_private_png(image: Images) -> bytes:
    """Real records as PNG, with a comment that they are for their owner only.

    Args:
        image: uint8 (height, width, 1 or 3).

    Raises:
        InvalidInput: The image is neither grey nor RGB.
    """
    marking = PngImagePlugin.PngInfo()
    marking.add_text("Comment", PRIVATE)
    return _encoded(image, marking)


def _encoded(image: Images, marking: PngImagePlugin.PngInfo) -> bytes:
    if image.shape[-1] not in _CHANNELS:
        raise InvalidInput("PNG is written for one or three channels. Ask for NPZ.")
    buffer = io.BytesIO()
    Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(buffer, format="PNG", pnginfo=marking)
    return buffer.getvalue()


_TILE_SIDE: Final = 64
"""Images are enlarged by the largest whole factor that keeps them within this many pixels."""

_GAP: Final = 2
_MAXIMUM_ROWS: Final = 50
_BACKGROUND: Final = 255


def sample_grid(images: Images, labels: Labels, schema: Schema, columns: int = 10) -> bytes:
    """PNG with the first `columns` images of every class, one class per row, at most 50 rows.

    Args:
        images: uint8 (n, height, width, channels), synthetic: the PNG says so.
        labels: int64 (n,).
        columns: Images per class; places stay blank where a class has fewer.
    """
    return encode_png(grid(images, labels, schema, columns))


def grid(images: Images, labels: Labels, schema: Schema, columns: int = 10) -> Images:
    """The same as pixels, uint8 (height, width, channels).

    Args:
        images: uint8 (n, height, width, channels).
        labels: int64 (n,).
        columns: Images per class; places stay blank where a class has fewer.
    """
    factor = max(1, _TILE_SIDE // max(schema.height, schema.width))
    rows = min(schema.num_classes, _MAXIMUM_ROWS)
    step = np.array([schema.height, schema.width]) * factor + _GAP
    height, width = step * (rows, columns) + _GAP
    canvas = np.full((height, width, schema.channels), _BACKGROUND, dtype=np.uint8)
    for row in range(rows):
        for column, index in enumerate(np.flatnonzero(labels == row)[:columns]):
            tile = images[index].repeat(factor, axis=0).repeat(factor, axis=1)
            top, left = step * (row, column) + _GAP
            canvas[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
    return canvas
