"""Tuning for graphics processors: all of it, and nothing of it changes the guarantee.

Teachers are private and their votes are integers of bounded length however they were computed, so products of
teachers may be rounded as coarsely as pays.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

# A block that fits the processor's cache is fastest.
_CACHED_BYTES: Final = 2**25
# Of a graphics processor's memory, for one block: its launches take no time then, and the teachers have room.
_SHARE: Final = 16


def block_bytes(device: torch.device) -> int:
    """Memory for the activations and gradients of the teachers handled at once, by default."""
    if device.type != "cuda":
        return _CACHED_BYTES
    total: int = torch.cuda.get_device_properties(device).total_memory
    return total // _SHARE


@contextmanager
def reduced_precision_products(device: torch.device, enabled: bool = True) -> Iterator[None]:
    """Within it, matrix products on a graphics processor use TF32: 10 bits of a factor's mantissa, sums in 23.

    The setting belongs to the process and is restored afterwards.
    """
    if device.type != "cuda" or not enabled:
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
