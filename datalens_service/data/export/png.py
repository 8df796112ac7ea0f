"""PNG files that say what they are: synthetic, public, or private."""

import io
from collections.abc import Callable, Mapping
from typing import Any, Final

from PIL import Image, PngImagePlugin

from datalens_service.data.dataset import Images
from datalens_service.data.export.provenance import XMP, is_verbatim
from datalens_service.errors import InvalidInput

PUBLIC: Final = "A public image, as it was published. Its labels were learned from private records."
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


def encode_public_png(image: Images) -> bytes:
    """One public image as PNG, with a comment that it is no synthetic one."""
    return _commented(image, PUBLIC)


def choose_encoder(card: Mapping[str, Any]) -> Callable[[Images], bytes]:
    """How images with this card become PNG."""
    return encode_public_png if is_verbatim(card) else encode_png


def encode_private_png(image: Images) -> bytes:
    """Real records as PNG, with a comment that they are for their owner only."""
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
