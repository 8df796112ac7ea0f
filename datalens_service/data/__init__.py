"""Labelled image sets: reading, keeping, dealing to shards and exporting them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from datalens_service.data import image_folder, npz
from datalens_service.data.limits import DEFAULT_LIMITS, Limits
from datalens_service.data.units import UnitDeclaration
from datalens_service.data.upload import ClassNames, Reader, Upload
from datalens_service.errors import InvalidDataset

READERS: Final[dict[str, Reader]] = {"npz": npz.READER, "image_folder": image_folder.READER}


def detect(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> str:
    """Format of an upload, by its contents; its name plays no part.

    Returns:
        A key of `READERS`.

    Raises:
        InvalidDataset: No reader recognises it, or its archive is refused.
    """
    if not path.is_file():
        raise InvalidDataset("There is no such file. Name an NPZ or a zip of class folders.")
    for name, reader in READERS.items():
        if reader.recognises(path, limits):
            return name
    raise InvalidDataset(
        "This is neither an NPZ with labelled images nor a zip of class folders with PNG or JPEG files. "
        "Save arrays with numpy.savez_compressed, or zip a folder that holds one folder for each class."
    )


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
    reader = READERS[detect(path, limits=limits)]
    return reader.read(path, class_names=class_names, units=units, limits=limits)


__all__ = ["DEFAULT_LIMITS", "READERS", "Limits", "Reader", "UnitDeclaration", "Upload", "detect", "read_upload"]
