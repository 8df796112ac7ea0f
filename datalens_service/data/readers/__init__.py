"""Upload formats: one module per format, one line each in `_FORMATS`."""

from typing import Final

from numpy.lib import format as npy

from datalens_service.data.readers import idx, image_folder, image_table, npz, parquet, webdataset
from datalens_service.data.readers.base import Reader
from datalens_service.data.readers.image_entries import PREPARE, is_ignored, preparable_names
from datalens_service.data.reading_choices import AS_IT_IS, ReadingChoices
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
EMPTY: Final = f"The file is empty. {_WHAT_TO_DO}"
"""Why a file of no byte is refused."""
_START_BYTES: Final = 4096
_FEW_COLUMNS: Final = 8
_ARCHIVES: Final = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar")


def recognised(source: Source, choices: ReadingChoices = AS_IT_IS) -> str:
    """Format of an opened upload: a key of `READERS`.

    Raises:
        UnusableFiles: It holds images that have to be prepared, with their names.
        InvalidDataset: No reader recognises it.
    """
    for name, reader in READERS.items():
        if reader.recognises(source, choices):
            return name
    names = preparable_names(source)
    if names:
        raise UnusableFiles([BadFile(name=name, reason=PREPARE) for name in names], len(names))
    raise InvalidDataset(_unknown(source))


def _unknown(source: Source) -> str:
    """What a file is that nobody reads, as far as can be told.

    Raises:
        UnusableFiles: It is an archive; the files in it are named.
    """
    if source.archive is not None:
        return _unknown_archive(source)
    start = source.start(_START_BYTES)
    if not start:
        return EMPTY
    if start.startswith(npy.MAGIC_PREFIX):
        return "This is one array without labels. Put images and labels into one NPZ: numpy.savez_compressed."
    if all(byte in b"\t\r\n" or byte >= ord(" ") for byte in start) and start.count(b",") > _FEW_COLUMNS:
        return (
            "This is a table of numbers as text. Save its pixels and labels as arrays: "
            "numpy.savez_compressed('images.npz', images=pixels.reshape(n, height, width), labels=labels)."
        )
    titles = ", nor ".join(reader.title for reader in READERS.values())
    return f"This is neither {titles}. {_WHAT_TO_DO}"


def _unknown_archive(source: Source) -> str:
    names = [entry.filename for entry in source.entries if not is_ignored(entry.filename)]
    if not names:
        return f"There is no image in it: it is empty, or holds only notes and hidden files. {_WHAT_TO_DO}"
    archives = [name for name in names if name.casefold().endswith(_ARCHIVES)]
    reason = (
        "The upload holds another archive. Unpack that one, and upload it or its images."
        if archives
        else f"No name in it ends as those of images do. Name images .png or .jpg, or what they are. {_WHAT_TO_DO}"
    )
    raise UnusableFiles([BadFile(name=name, reason=reason) for name in archives or names], len(names))


def usual_suffixes() -> tuple[str, ...]:
    """What files of all formats are usually called, each suffix once."""
    return tuple(dict.fromkeys(suffix for reader in READERS.values() for suffix in reader.suffixes))
