"""Labelled image sets: reading, keeping, dealing to shards and exporting them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from datalens_service.data.notices import Notice
from datalens_service.data.privacy_units import UnitDeclaration
from datalens_service.data.readers import idx, image_folder, image_table, npz, parquet, webdataset
from datalens_service.data.readers.base import ClassNames, Reader, Upload
from datalens_service.data.schema_inference import inspect, without_constant_images
from datalens_service.data.untrusted.limits import DEFAULT_LIMITS, Limits
from datalens_service.data.untrusted.source import Source, open_source
from datalens_service.errors import InvalidDataset

READERS: Final[dict[str, Reader]] = {
    "npz": npz.READER,
    "parquet": parquet.READER,
    "idx": idx.READER,
    "webdataset": webdataset.READER,
    "image_table": image_table.READER,
    "image_folder": image_folder.READER,
}
"""In the order in which they are asked: a folder of images with labels beside them is also a folder of images."""


def detect(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """Format of an upload, by its contents; its name plays no part.

    Returns:
        A key of `READERS`.

    Raises:
        InvalidDataset: No reader recognises it, or its archive is refused.
    """
    with open_source(_existing(path), limits) as source:
        return recognised(source)


def read_upload(
    path: Path,
    *,
    class_names: ClassNames | None = None,
    units: UnitDeclaration | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Upload:
    """Read an upload of any known format; the caller adds the partition key to make it a `Dataset`.

    Args:
        path: The file; contents decide the format.
        class_names: Public class names; None leaves them to the format (see each reader).
        units: What one privacy unit is, if the upload groups its records; None: every record is one.
        limits: Caps on what is read and unpacked.

    Returns:
        (schema, train, test or None).

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    return read_with_notices(path, class_names=class_names, units=units, limits=limits)[0]


def read_with_notices(
    path: Path,
    *,
    class_names: ClassNames | None = None,
    units: UnitDeclaration | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Upload, tuple[Notice, ...]]:
    """The same with what its owner should know of how it was read. Notices are private.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    with open_source(_existing(path), limits) as source:
        _, upload = read_source(source, class_names=class_names, units=units)
        return upload, source.notices.collected()


def read_source(
    source: Source,
    *,
    class_names: ClassNames | None,
    units: UnitDeclaration | None,
    leave_out_constant_images: bool = False,
) -> tuple[str, Upload]:
    """Read an opened upload; what its owner should know is in `source.notices` afterwards.

    Args:
        source: The opened file.
        class_names: Public class names; None leaves them to the format.
        units: What one privacy unit is; None: every record is one.
        leave_out_constant_images: Whether training images of a single colour are left out.

    Returns:
        A key of `READERS`, and the contents.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    name = recognised(source)
    upload = READERS[name].read(source, class_names=class_names, units=units)
    if leave_out_constant_images:
        upload = without_constant_images(upload, units, source.notices)
    inspect(upload, source.notices)
    return name, upload


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InvalidDataset("There is no such file. Name an NPZ, a zip or tar of images, or a Parquet file.")
    return path


def recognised(source: Source) -> str:
    """Format of an opened upload: a key of `READERS`.

    Raises:
        InvalidDataset: No reader recognises it.
    """
    for name, reader in READERS.items():
        if reader.recognises(source):
            return name
    raise InvalidDataset(
        "This is neither an NPZ with labelled images, nor Parquet with an image column, nor a zip or tar of class "
        "folders, of images with metadata.csv, of a WebDataset or of the IDX files of MNIST. Save arrays with "
        "numpy.savez_compressed, or zip a folder that holds one folder of PNG or JPEG files for each class."
    )


__all__ = [
    "DEFAULT_LIMITS",
    "READERS",
    "Limits",
    "Reader",
    "UnitDeclaration",
    "Upload",
    "detect",
    "read_source",
    "read_upload",
    "read_with_notices",
    "recognised",
]
