"""Whether an ensemble fits into memory, said before it is built rather than by the kernel's out-of-memory killer."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidSpec
from datalens_service.models.networks import ARCHITECTURES

_BYTES_PER_WEIGHT = 12
"""A float32 weight and its two Adam moments."""
_GIBIBYTE = 2**30


def check_memory(architecture: str, num_teachers: int, schema: Schema, device: str) -> None:
    """Refuse teachers whose weights and optimiser states do not fit.

    Raises:
        InvalidSpec: Says how much is needed and what to change.
    """
    weights = sum(math.prod(shape) for shape in ARCHITECTURES[architecture](schema).shapes().values())
    needed = num_teachers * weights * _BYTES_PER_WEIGHT
    free = available_bytes(device)
    if needed > free:
        raise InvalidSpec(
            f"{num_teachers} teachers of kind {architecture} need {needed / _GIBIBYTE:.1f} GiB of memory and "
            f"{free / _GIBIBYTE:.1f} GiB are free: name fewer teachers, or teacher 'dense'."
        )


def available_bytes(device: str) -> int:
    """Memory that a process can still get on `device`; without a known figure, no bound."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    found = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return found[0] if found else 2**63
