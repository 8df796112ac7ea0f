"""Labelled image sets: reading, keeping, dealing to shards and exporting them."""

from __future__ import annotations

from pathlib import Path

from datalens_service.data.notices import Notice
from datalens_service.data.privacy_units import UnitDeclaration
from datalens_service.data.readers import READERS, recognised
from datalens_service.data.readers.base import ClassNames, Reader, Upload
from datalens_service.data.schema_inference import inspect, without_constant_images
from datalens_service.data.untrusted.images import STRICT
from datalens_service.data.untrusted.limits import DEFAULT_LIMITS, Limits
from datalens_service.data.untrusted.source import Source, open_source
from datalens_service.errors import InvalidDataset


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
    if not READERS[name].prepares and source.decoder is not STRICT:
        raise InvalidDataset(
            "Arrays of pixels cannot be prepared. Send a zip or tar of images, or leave out ⟦prepare_size⟧."
        )
    upload = READERS[name].read(source, class_names=class_names, units=units)
    if leave_out_constant_images:
        upload = without_constant_images(upload, units, source.notices)
    inspect(upload, source.notices)
    return name, upload


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InvalidDataset("There is no such file. Name an NPZ, a zip or tar of images, or a Parquet file.")
    return path


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
