"""PNG files that state whether they are synthetic, public or private; and a grid of samples."""

import io
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from PIL import Image, PngImagePlugin

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export.content_credentials import ContentCredentials
from datalens_service.data.export.writer import XMP

PUBLIC: Final = "A public image, as it was published. Its labels were learned from private records."
PRIVATE: Final = "Private records. For their owner only; not to be passed on."

_CHANNELS: Final = (1, 3)


def encode_png(image: Images, credentials: ContentCredentials | None = None) -> bytes:
    """Encode one image as PNG, with XMP that marks it as made by a trained model.

    Args:
        image: uint8 (height, width, 1 or 3).
        credentials: Sign the same in a C2PA manifest.

    Raises:
        InvalidInput: The image is neither grey nor RGB.
    """
    marking = PngImagePlugin.PngInfo()
    marking.add_itxt("XML:com.adobe.xmp", XMP)
    png = _encoded(image, marking)
    return png if credentials is None else credentials.mark_png(png)


def encode_public_png(image: Images) -> bytes:
    """Encode one public image as PNG, with a comment that it is no synthetic one."""
    return _commented(image, PUBLIC)


def choose_encoder(verbatim: bool, credentials: ContentCredentials | None = None) -> Callable[[Images], bytes]:
    """Choose the encoder to PNG of public images or parts of them (`verbatim`), or of synthetic ones."""
    return encode_public_png if verbatim else partial(encode_png, credentials=credentials)


def encode_private_png(image: Images) -> bytes:
    """Encode real records as PNG, with a comment that they are for their owner only."""
    return _commented(image, PRIVATE)


def _commented(image: Images, comment: str) -> bytes:
    marking = PngImagePlugin.PngInfo()
    marking.add_text("Comment", comment)
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
MOST_ROWS: Final = 50
_BACKGROUND: Final = 255


def sample_grid(
    images: Images, labels: Labels, schema: Schema, columns: int = 10, encode: Callable[[Images], bytes] = encode_png
) -> bytes:
    """Encode the grid of the first `columns` images of every class, one class per row, at most 50 rows."""
    return encode(grid(images, labels, schema, columns))


def grid(images: Images, labels: Labels, schema: Schema, columns: int = 10) -> Images:
    """Return the grid as pixels, uint8 (height, width, channels)."""
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
