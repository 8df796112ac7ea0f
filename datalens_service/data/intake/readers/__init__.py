"""Upload formats: one module per format, one line each in `_FORMATS`."""

from typing import Final

from numpy.lib import format as npy

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.readers import idx, image_folder, image_table, npz, parquet, webdataset
from datalens_service.data.intake.readers.base import Reader
from datalens_service.data.intake.readers.image_entries import ARCHIVE_BESIDE, is_ignored, kind_in
from datalens_service.data.intake.reading_choices import AS_IT_IS, ReadingChoices
from datalens_service.data.intake.untrusted.entries import FileEntry
from datalens_service.data.intake.untrusted.file_kinds import START_BYTES, Use, find_kind, find_package
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles
from datalens_service.data.intake.untrusted.zip_archive import ends_like_part_of_zip

_FORMATS: Final = (
    npz.READER,
    parquet.READER,
    idx.READER,
    webdataset.READER,
    image_table.READER,
    image_folder.READER,
)
"""The order in which formats are tried: a folder of images with labels beside them is also a folder of images."""

READERS: Final[dict[str, Reader]] = {reader.name: reader for reader in _FORMATS}
"""All formats by name, in the order in which they are tried."""

_WHAT_TO_DO: Final = (
    "Save arrays with numpy.savez_compressed, or zip a folder that holds one folder of PNG or JPEG files per class."
)
EMPTY: Final = f"The file is empty. {_WHAT_TO_DO}"
"""The reason for refusing an empty file."""
_FEW_COLUMNS: Final = 8
_ARCHIVES: Final = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")


def recognise_format(source: Source, choices: ReadingChoices = AS_IT_IS) -> str:
    """Return the format of an opened upload: a key of `READERS`.

    Raises:
        UnusableFiles: No reader recognises the content; the files are named, with what they are.
        InvalidDataset: No reader recognises it.
    """
    package = find_package(entry.filename for entry in source.entries)
    if package is not None:
        raise InvalidDataset(f"This is {package.name}, which is not read. {package.advice}")
    for name, reader in READERS.items():
        if reader.recognises(source, choices):
            return name
    if source.archive is not None:
        raise _unknown_archive(source)
    raise InvalidDataset(_unknown(source))


def _unknown(source: Source) -> str:
    """Describe a file that no reader takes, as far as can be told."""
    start = source.start(START_BYTES)
    if not start:
        return EMPTY
    kind = find_kind(start)
    if start.startswith(npy.MAGIC_PREFIX):
        return "This is one array without labels. Put images and labels into one NPZ: numpy.savez_compressed."
    if kind is not None and kind.use in (Use.PICTURE, Use.PREPARED_PICTURE):
        return f"This is {kind.name}, a single one. Zip a folder that holds one folder of images per class."
    if kind is not None:
        inside = "The packed file holds" if source.was_packed else "This is"
        return f"{inside} {kind.name}, which is not read. {kind.advice}"
    if ends_like_part_of_zip(source.path):
        return "This is the last part of a split zip, which is not read. Pack the images as one zip, or as a tar."
    if source.was_packed:
        return f"The packed file holds neither a tar nor a zip. {_WHAT_TO_DO}"
    if all(byte in b"\t\r\n" or byte >= ord(" ") for byte in start) and start.count(b",") > _FEW_COLUMNS:
        return (
            "This is a table of numbers as text. Save its pixels and labels as arrays: "
            "numpy.savez_compressed('images.npz', images=pixels.reshape(n, height, width), labels=labels)."
        )
    titles = ", nor ".join(reader.title for reader in READERS.values())
    return f"This is neither {titles}. {_WHAT_TO_DO}"


def _unknown_archive(source: Source) -> InvalidDataset:
    """Return the refusal of an archive, or a folder, without an image that can be read."""
    entries = [entry for entry in source.entries if not is_ignored(entry.filename)]
    if not entries:
        return InvalidDataset(
            f"There is no image in it: it is empty, or holds only notes and hidden files. {_WHAT_TO_DO}"
        )
    bad = [BadFile(name=entry.filename, reason=reason) for entry in entries if (reason := _why_not(source, entry))]
    unknown = f"No file in it is an image that is known, by its name or its first bytes. {_WHAT_TO_DO}"
    return UnusableFiles(bad or [BadFile(name=entry.filename, reason=unknown) for entry in entries], len(entries))


def _why_not(source: Source, entry: FileEntry) -> str:
    """Describe a file, where that can be told; otherwise ""."""
    kind = kind_in(source, entry)
    if kind is None and entry.filename.casefold().endswith(_ARCHIVES):
        return ARCHIVE_BESIDE.format("by its name")
    if kind is not None and kind.use is Use.ARCHIVE:
        return ARCHIVE_BESIDE.format(kind.name)
    try:
        source.decoder.check_kind(kind)
    except InvalidDataset as error:
        return error.text
    return ""


def usual_suffixes() -> tuple[str, ...]:
    """List the usual suffixes of all formats, each once."""
    return tuple(dict.fromkeys(suffix for reader in READERS.values() for suffix in reader.suffixes))
