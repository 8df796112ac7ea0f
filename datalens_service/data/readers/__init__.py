"""Upload formats: one module per format, one line each in `_FORMATS`."""

from __future__ import annotations

from typing import Final

from datalens_service.data.readers import idx, image_folder, image_table, npz, parquet, webdataset
from datalens_service.data.readers.base import Reader
from datalens_service.data.readers.image_entries import PREPARE, preparable_names
from datalens_service.data.untrusted.source import Source
from datalens_service.data.untrusted.validation_errors import BadFile, UnusableFiles
from datalens_service.errors import InvalidDataset

_FORMATS: Final = (
    npz.READER,
    parquet.READER,
    idx.READER,
    webdataset.READER,
    image_table.READER,
    image_folder.READER,
)
"""In the order in which they are asked: a folder of images with labels beside them is also a folder of images."""

READERS: Final[dict[str, Reader]] = {reader.name: reader for reader in _FORMATS}
"""By name, in the order in which they are asked."""

_WHAT_TO_DO: Final = (
    "Save arrays with numpy.savez_compressed, or zip a folder that holds one folder of PNG or JPEG files per class."
)


def recognised(source: Source) -> str:
    """Format of an opened upload: a key of `READERS`.

    Raises:
        UnusableFiles: It holds images that have to be prepared, with their names.
        InvalidDataset: No reader recognises it.
    """
    for name, reader in READERS.items():
        if reader.recognises(source):
            return name
    names = preparable_names(source)
    if names:
        raise UnusableFiles([BadFile(name=name, reason=PREPARE) for name in names], len(names))
    titles = ", nor ".join(reader.title for reader in READERS.values())
    raise InvalidDataset(f"This is neither {titles}. {_WHAT_TO_DO}")


def usual_suffixes() -> tuple[str, ...]:
    """What files of all formats are usually called, each suffix once."""
    return tuple(dict.fromkeys(suffix for reader in READERS.values() for suffix in reader.suffixes))
