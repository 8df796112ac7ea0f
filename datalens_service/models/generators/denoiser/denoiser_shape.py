"""Size of a denoiser, from the shape of the images alone: plans are priced without torch."""

import math
from dataclasses import dataclass
from typing import Any, Final

from datalens_service.data.dataset import Schema

EMBEDDING: Final = 64
"""Numbers by which noise level and class enter every block."""

FREQUENCIES: Final = 8
"""Frequencies of the noise level's logarithm, each with its sine and cosine."""

DEFAULT_GRID: Final = 16
BATCH: Final = 256
"""Images that a denoiser learns from at once."""
_CLASS_MAPS: Final = 80
_KERNEL: Final = 9


@dataclass(frozen=True)
class DenoiserShape:
    """A network that sees patches of pixels on one grid, and a grid half as fine below it.

    Attributes:
        width: Maps on the finer grid; twice as many on the coarser one. A multiple of 8.
        blocks: Residual blocks on the coarser grid.
        largest_grid: Patches of the finer grid along the longer side, at most.
    """

    schema: Schema
    width: int
    blocks: int
    largest_grid: int = DEFAULT_GRID

    @property
    def patch(self) -> int:
        """Return the side of a patch: the smallest power of two that leaves a grid that is not too large."""
        side = max(self.schema.height, self.schema.width)
        return 1 << max(1, math.ceil(math.log2(side / self.largest_grid)))

    @property
    def padded(self) -> tuple[int, int]:
        """Return height and width that the patches of the coarser grid fill."""
        unit = 2 * self.patch
        return -(-self.schema.height // unit) * unit, -(-self.schema.width // unit) * unit

    @property
    def coarse_grid(self) -> tuple[int, int]:
        """Return rows and columns of the coarser grid."""
        height, width = self.padded
        return height // (2 * self.patch), width // (2 * self.patch)

    @property
    def patch_numbers(self) -> int:
        return self.schema.channels * self.patch**2

    @property
    def class_maps(self) -> int:
        """Return the maps that each class adds on the coarser grid; fewer where there are many classes."""
        return max(1, min(8, _CLASS_MAPS // self.schema.num_classes))

    def num_weights(self) -> int:
        narrow, wide, area = self.width, 2 * self.width, math.prod(self.coarse_grid)
        inputs = 2 * FREQUENCIES + self.schema.num_classes
        embedding = EMBEDDING * (inputs + 1) + EMBEDDING * (EMBEDDING + 1)
        ends = _convolution(self.patch_numbers, narrow) + _convolution(narrow, self.patch_numbers)
        between = _convolution(narrow, wide) + 4 * narrow * (wide + 1)
        places = wide * area + self.class_maps * (self.schema.num_classes * area + wide)
        blocks = _block(narrow, narrow) + self.blocks * _block(wide, wide) + _block(2 * narrow, narrow)
        return embedding + ends + between + places + blocks

    def settings(self) -> dict[str, Any]:
        """Return JSON-compatible numbers from which the network is built again."""
        return {"width": self.width, "blocks": self.blocks}


def _convolution(inputs: int, outputs: int) -> int:
    return outputs * (_KERNEL * inputs + 1)


def _block(inputs: int, outputs: int) -> int:
    shortcut = inputs * outputs if inputs != outputs else 0
    return _convolution(inputs, outputs) + _convolution(outputs, outputs) + 2 * outputs * (EMBEDDING + 1) + shortcut
