"""Patches of 5×5 convolutions of stride 2 with "same" padding, for many stacked inputs at once.

Planes are (n, maps, height, width, B) with the batch innermost: every copy then moves runs of B numbers, and
a convolution with each of n kernels is one batched matrix product.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

KERNEL: Final = 5
TAPS: Final = KERNEL * KERNEL
STRIDE: Final = 2


def halved(side: int) -> int:
    """Return the output side of a convolution of stride 2 with "same" padding."""
    return -(-side // STRIDE)


def _padding(side: int) -> tuple[int, int]:
    """Return the zeros before and after; an odd one goes behind, as in the original's framework."""
    total = max((halved(side) - 1) * STRIDE + KERNEL - side, 0)
    return total // 2, total - total // 2


def taps_inside(height: int, width: int) -> Tensor:
    """Mark by 1 where a kernel tap reads the image, by 0 where it reads padding, (height·width of the output, taps)."""
    return unfold(torch.ones(1, 1, height, width, 1)).view(TAPS, -1).T.contiguous()


def _windows(height: int, width: int) -> list[tuple[slice, slice]]:
    """Return the slices of a padded plane that each kernel tap reads, for an output of `height` by `width`."""
    rows = [slice(tap, tap + STRIDE * height - 1, STRIDE) for tap in range(KERNEL)]
    columns = [slice(tap, tap + STRIDE * width - 1, STRIDE) for tap in range(KERNEL)]
    return [(row, column) for row in rows for column in columns]


def unfold(planes: Tensor) -> Tensor:
    """Return patches (n, maps·taps, h·w·B) that a 5×5 convolution of stride 2 reads from (n, maps, H, W, B).

    The batch is innermost, so that the one copy moves runs of B numbers.
    """
    teachers, maps, height, width, batch = planes.shape
    padded = functional.pad(planes, (0, 0, *_padding(width), *_padding(height)))
    *outer, row, column, one = padded.stride()
    shape = (teachers, maps, KERNEL, KERNEL, halved(height), halved(width), batch)
    windows = padded.as_strided(shape, (*outer, row, column, STRIDE * row, STRIDE * column, one))
    return windows.reshape(teachers, maps * TAPS, -1)


def fold(patches: Tensor, shape: torch.Size) -> Tensor:
    """Sum patches into planes of `shape`: the transpose of `unfold`."""
    teachers, maps, height, width, batch = shape
    (top, bottom), (left, right) = _padding(height), _padding(width)
    padded = patches.new_zeros(teachers, maps, top + height + bottom, left + width + right, batch)
    patches = patches.view(teachers, maps, TAPS, halved(height), halved(width), batch)
    for tap, (rows, columns) in enumerate(_windows(halved(height), halved(width))):
        padded[:, :, rows, columns] += patches[:, :, tap]
    return padded[:, :, top : top + height, left : left + width]


class Unfold(torch.autograd.Function):
    """`unfold` with its derivative."""

    @staticmethod
    def forward(context: Any, planes: Tensor) -> Tensor:
        context.shape = planes.shape
        return unfold(planes)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        return fold(gradient.contiguous(), context.shape)
