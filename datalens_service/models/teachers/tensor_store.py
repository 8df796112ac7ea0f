"""Storage of an ensemble's numbers: in memory up to a limit, beyond it in a file that has no name.

4,000 of the original's teachers with their optimiser states are 25 GiB. They are used block by block, so all but
the current block may lie on disk. The numbers are the same to the last bit wherever they lie.
"""

import math
import mmap
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from datalens_service.base.errors import InvalidSpec

MEMORY_GIB: Final = 8.0
"""Weights and optimiser states that may stay in memory, by default."""

GIBIBYTE: Final = 2**30

_FLOAT: Final = 4
_LEFT_FREE: Final = GIBIBYTE
"""Bytes left free on the disk, which may also hold the ledger."""

Shape = tuple[int, ...]


class TensorFile:
    """Float32 tensors in a shared mapping of a file without a name.

    Its content is private. It ends with the process, however that ends: the file never has a name, or loses it
    before the first number is written. Its whole size is reserved at once, since a disk that is full later would
    kill the process.

    Args:
        folder: Folder on a disk; None takes the system's folder for temporary files.

    Raises:
        InvalidSpec: The disk is too small.
    """

    def __init__(self, shapes: Sequence[Shape], folder: Path | None = None) -> None:
        size = sum(_pages(shape) for shape in shapes)
        directory = folder or Path(tempfile.gettempdir())
        with tempfile.TemporaryFile(dir=directory) as file:
            _reserve(file.fileno(), size, directory)
            self._mapping = mmap.mmap(file.fileno(), size)
        self._ranges: list[tuple[int, Shape]] = []
        self._end = 0

    def zeros(self, shape: Shape) -> Tensor:
        """Return the next tensor, all 0; as large as the one announced to the constructor."""
        start, self._end = self._end, self._end + _pages(shape)
        self._ranges.append((start, shape))
        return torch.frombuffer(self._mapping, dtype=torch.float32, count=math.prod(shape), offset=start).view(shape)

    def drop(self, rows: slice = slice(None)) -> None:
        """Remove rows of all tensors from the resident memory of this process; they keep their values.

        The kernel writes them to the disk when it wants their pages for something else.
        """
        for start, shape in self._ranges:
            first, stop, _ = rows.indices(shape[0])
            row = _FLOAT * math.prod(shape[1:])
            # Whole pages: a neighbour's numbers on them are read again when they are used.
            begin = (start + first * row) // mmap.PAGESIZE * mmap.PAGESIZE
            self._mapping.madvise(mmap.MADV_DONTNEED, begin, start + stop * row - begin)


class Scratch:
    """Float32 memory of a processor that one block after another uses: fresh pages cost more than the work on them.

    Its content is private and stays until the next block. A graphics processor's allocator does the same by itself.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def tensor(self, name: str, shape: Shape, device: torch.device) -> Tensor:
        """Return numbers of any value, which the next request for this name overwrites."""
        if device.type == "cuda":
            return torch.empty(shape, device=device)
        needed, buffer = math.prod(shape), self._buffers.get(name)
        if buffer is None or len(buffer) < needed:
            buffer = self._buffers[name] = torch.empty(needed)
        return buffer[:needed].view(shape)


def spill_to_file(
    memory_gib: float, shapes: Sequence[Shape], device: torch.device, folder: Path | None = None
) -> TensorFile | None:
    """Return a file for tensors that do not fit into memory, None where they fit.

    Args:
        memory_gib: Largest size of all tensors together that may stay in the machine's memory, in GiB. Less is
            allowed to stay while less is free.
        shapes: Shapes of float32 tensors.

    Raises:
        InvalidSpec: They fit neither into memory nor on the disk. The message says how much is needed and what to
            change.
        MemoryError: They would fit on a GPU of which less is free now.
    """
    needed, free = total_bytes(shapes), available_bytes(device)
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        if needed > total:
            raise _too_large(needed, total, "memory of the GPU")
        if needed > free:
            # Whether another program has the rest is for the job to tell, which may wait.
            raise MemoryError
        return None
    return None if needed <= min(memory_gib * GIBIBYTE, free) else TensorFile(shapes, folder)


def total_bytes(shapes: Sequence[Shape]) -> int:
    return sum(_FLOAT * math.prod(shape) for shape in shapes)


def available_bytes(device: torch.device) -> int:
    """Return the memory that a process can still get on `device`; without a known figure, no bound."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else []
    available = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    return available[0] if available else 2**63


def _pages(shape: Shape) -> int:
    """Return the bytes of a tensor that begins and ends with a page."""
    return -(-_FLOAT * math.prod(shape) // mmap.PAGESIZE) * mmap.PAGESIZE


def _reserve(file: int, size: int, directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    too_small = _too_large(size + _LEFT_FREE, free, "disk beside the memory limit")
    if size + _LEFT_FREE > free:
        raise too_small
    try:
        os.posix_fallocate(file, 0, size)
    except OSError as error:
        raise too_small from error


def _too_large(needed: int, free: int, what: str) -> InvalidSpec:
    return InvalidSpec(
        f"The teachers need {needed / GIBIBYTE:.1f} GiB of {what} and {free / GIBIBYTE:.1f} GiB are free: "
        "lower ⟦method.num_teachers⟧, or choose ⟦method.teacher⟧ dense."
    )
