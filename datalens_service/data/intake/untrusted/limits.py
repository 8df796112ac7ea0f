"""Limits on how much of an upload is read before it is refused."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Limits:
    """Caps on what an archive may declare and unpack to.

    Attributes:
        entries: Entries of one archive, directories included.
        uncompressed_bytes: Sum of all declared sizes; also the cap on all decoded images together.
        ratio_free_bytes: Unpacked size of a whole archive up to which `ratio` is not applied: blank images and
            sorted labels pack 1000:1 and are harmless while they are small.
        image_file_bytes: Unpacked size of one image file.
        image_ratio_free_bytes: The same as `ratio_free_bytes`, for one image file.
        image_pixels: Pixels of one image, checked before it is decoded.
    """

    entries: int = 200_000
    uncompressed_bytes: int = 4 * 2**30
    ratio: int = 100
    ratio_free_bytes: int = 64 * 2**20
    image_file_bytes: int = 16 * 2**20
    image_ratio_free_bytes: int = 64 * 2**10
    image_pixels: int = 2**20


DEFAULT_LIMITS: Final = Limits()

PREPARE_LIMITS: Final = Limits(image_file_bytes=2**28, image_pixels=2**26)
"""Caps for images that are resized one by one: photographs and scans as devices make them."""
