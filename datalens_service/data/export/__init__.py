"""Synthetic images as files: one module per format, one line each in `_FORMATS`.

Every file says that it is synthetic and carries the card, and equal input gives equal bytes, but for C2PA signatures.
"""

from typing import Final

from datalens_service.data.export import image_folder, npz, parquet, webdataset
from datalens_service.data.export.png import sample_grid
from datalens_service.data.export.writer import ArchivePlace, Writer, WrittenImages

_FORMATS: Final = (npz.WRITER, parquet.WRITER, image_folder.WRITER, webdataset.WRITER)

WRITERS: Final[dict[str, Writer]] = {writer.name: writer for writer in _FORMATS}
"""All formats by name, in the order in which the API lists them."""

__all__ = ["WRITERS", "ArchivePlace", "Writer", "WrittenImages", "sample_grid"]
