"""Hashes of the pixels of released synthetic images, by which one is recognised that lost its marks.

    hash = SHA-256 of "datalens-pixels/1 HEIGHT WIDTH\\n" and the pixels, RGB, 8 bits, row by row

Grey images count as RGB with equal channels, so that saving one in another way without loss changes nothing. Of private
or public images there is none.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

import numpy as np

from datalens_service.data.dataset import Images

PIXEL_HASHES: Final = "pixel-hashes.txt"
"""File of a job or of a release archive: a hash in hexadecimal digits for each synthetic image, one on each line."""


def hash_pixels(image: Images) -> str:
    """Return the hash of one image, uint8 (height, width, 1 or 3)."""
    height, width = image.shape[:2]
    colours = np.broadcast_to(image, (height, width, 3))
    head = f"datalens-pixels/1 {height} {width}\n".encode()
    return hashlib.sha256(head + colours.tobytes()).hexdigest()


def list_hashes(images: Iterable[Images]) -> str:
    """Return the text of `PIXEL_HASHES`."""
    return "".join(f"{hash_pixels(image)}\n" for image in images)


def parse_hashes(text: str) -> frozenset[str]:
    """Parse the text of `PIXEL_HASHES`."""
    return frozenset(text.split())
