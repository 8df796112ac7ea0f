"""Whether products of matrices round a row the same way wherever it lies.

Some kernels read the numbers of a row up to the next aligned address by themselves, and so add in another order where
the row starts elsewhere. MKL does this on AMD EPYC, unless its mode for reproducible results is on (MKL_CBWR, set
when the package is imported; Intel oneMKL developer guide, "Obtaining Numerically Reproducible Results"). It is off in
a process that multiplied matrices before the import.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import linear

_ROWS: Final = 16
_CHUNKS: Final = 4
_WIDTHS: Final = (3, 7, 10, 49, 84, 785)

Product = Callable[[Tensor, Tensor], Tensor]


@cache
def products_ignore_placement() -> bool:
    """Try it on random rows on this machine's processor, once."""
    return ignores_placement(linear)


@contextmanager
def repeatable_kernels(device: torch.device) -> Iterator[None]:
    """Within it, convolutions on a graphics processor add in the same order every time.

    Some kernels for gradients add by atomic operations, in the order in which their threads happen to finish. The
    setting belongs to the process and is restored afterwards.
    """
    if device.type != "cuda":
        yield
        return
    kernels = torch.backends.cudnn
    before = (kernels.deterministic, kernels.benchmark)
    kernels.deterministic, kernels.benchmark = True, False
    try:
        yield
    finally:
        kernels.deterministic, kernels.benchmark = before


def ignores_placement(product: Product) -> bool:
    """Whether rows have the same products to the last bit after they changed places.

    Args:
        product: Of rows (16, width) and weights (outputs, width).
    """
    return all(_ignores_placement(product, width, outputs) for width in _WIDTHS for outputs in (1, *_WIDTHS))


def _ignores_placement(product: Product, width: int, outputs: int) -> bool:
    generator = torch.Generator().manual_seed(width)
    rows = torch.randn(_ROWS * _CHUNKS, width, generator=generator)
    weights = torch.randn(outputs, width, generator=generator)
    places = torch.randperm(len(rows), generator=generator)
    return all(
        torch.equal(_products(product, rows, layout)[places], _products(product, rows[places], layout))
        for layout in (weights, weights.T.contiguous().T)
    )


def _products(product: Product, rows: Tensor, weights: Tensor) -> Tensor:
    chunks = (rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS))
    return torch.cat([product(chunk, weights) for chunk in chunks])
