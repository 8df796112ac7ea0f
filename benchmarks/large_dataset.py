"""A dataset of any size as an NPZ, written a block of images at a time."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

SIDE = 256
CHANNELS = 3
_BLOCK = 64
_CLASSES = 4


def write_dataset(path: Path, length: int) -> int:
    """Write random images, no two alike, until they fill at least `length` bytes.

    Args:
        path: Of the file.
        length: Bytes of pixels.

    Returns:
        Number of images.
    """
    shape = (SIDE, SIDE, CHANNELS)
    count = max(2, -(-length // (SIDE * SIDE * CHANNELS)))
    rng = np.random.default_rng(0)
    # Stored, not compressed: noise does not shrink.
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        with archive.open("images.npy", "w", force_zip64=True) as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (count, *shape)}
            npy.write_array_header_1_0(file, header)
            for begin in range(0, count, _BLOCK):
                file.write(rng.bytes(min(_BLOCK, count - begin) * SIDE * SIDE * CHANNELS))
        with archive.open("labels.npy", "w") as file:
            npy.write_array(file, np.arange(count) % _CLASSES)
    return count
