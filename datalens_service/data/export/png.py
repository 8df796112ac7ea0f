"""PNG files that say they are synthetic."""

from __future__ import annotations

import io
from typing import Final

from PIL import Image, PngImagePlugin

from datalens_service.data.dataset import Images
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
