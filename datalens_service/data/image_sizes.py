"""Limits on the size of images, and the notation of a size."""

import re
from typing import Final, NamedTuple

MINIMUM_SIDE: Final = 4
"""In pixels."""
MAXIMUM_SIDE: Final = 256
"""In pixels."""

NOTATION: Final = f"64 (square) or 96x48 (width x height), {MINIMUM_SIDE} to {MAXIMUM_SIDE} pixels each"
"""The notation of a size, for people who write one."""
PATTERN: Final = "[0-9]{1,3}([x×][0-9]{1,3})?"
"""Pattern of a size, for forms and schemas."""

_SIZE: Final = re.compile(PATTERN)


class ImageSize(NamedTuple):
    """Width and height, as image programs name them; pixels."""

    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.width}" if self.width == self.height else f"{self.width}x{self.height}"


def parse_size(value: object) -> ImageSize:
    """Read a size as its owner writes it: `64`, `96x48` or `96×48`; a number is the side of a square.

    Raises:
        ValueError: The notation is another one, or a side is out of range.
    """
    text = str(value)
    sides = [int(side) for side in re.split("[x×]", text)] if _SIZE.fullmatch(text) else []
    if not sides or not all(MINIMUM_SIDE <= side <= MAXIMUM_SIDE for side in sides):
        raise ValueError(f"Write the size as {NOTATION}.")
    return ImageSize(sides[0], sides[-1])
