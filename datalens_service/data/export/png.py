"""PNG files that say they are synthetic."""

from __future__ import annotations

import io
from typing import Final

from PIL import Image, PngImagePlugin

from datalens_service.data.dataset import Images
from datalens_service.data.export.provenance import XMP
from datalens_service.errors import InvalidInput

_CHANNELS: Final = (1, 3)


def encode_png(image: Images) -> bytes:
    """One image as PNG, with XMP that marks it as made by a trained model.

    Args:
        image: uint8 (height, width, 1 or 3).

    Raises:
        InvalidInput: The image is neither grey nor RGB.
    """
    if image.shape[-1] not in _CHANNELS:
        raise InvalidInput("PNG is written for one or three channels. Ask for NPZ.")
    marking = PngImagePlugin.PngInfo()
    marking.add_itxt("XML:com.adobe.xmp", XMP)
    buffer = io.BytesIO()
    Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).save(buffer, format="PNG", pnginfo=marking)
    return buffer.getvalue()
