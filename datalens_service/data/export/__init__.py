"""Synthetic images as files: one writer per format.

Every file says that it is synthetic and carries the card, and equal input gives equal bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.data.export import image_folder, npz, parquet, webdataset
from datalens_service.data.export.grid import sample_grid


class Writer(Protocol):
    """Writes one format."""

    def __call__(self, path: Path, images: Images, labels: Labels, schema: Schema, card: dict[str, Any]) -> None:
        """Write a file that states it is synthetic.

        Args:
            path: File to create or replace; not written atomically.
            images: uint8 (n, height, width, channels), released.
            labels: int64 (n,), in [0, num_classes).
            schema: Public schema of the images.
            card: JSON-compatible and public.
        """


WRITERS: Final[dict[str, Writer]] = {
    "npz": npz.write,
    "parquet": parquet.write,
    "imagefolder": image_folder.write,
    "webdataset": webdataset.write,
}

__all__ = ["WRITERS", "Writer", "sample_grid"]
