"""A folder of `class/image` or `class/patient/image` becomes arrays of the NPZ upload format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images
from datalens_service.data.notices import Notices
from datalens_service.data.preparation import dicom
from datalens_service.data.preparation.kinds import SUFFIXES, is_dicom
from datalens_service.data.preparation.pictures import prepare_picture
from datalens_service.data.preparation_settings import Colour, PrepareSettings
from datalens_service.data.untrusted.limits import Limits
from datalens_service.data.untrusted.validation_errors import ValidationErrors
from datalens_service.errors import InvalidDataset

Arrays = dict[str, NDArray[Any]]


def prepare_folder(
    folder: Path, settings: PrepareSettings, limits: Limits, *, patients: bool = False
) -> tuple[Arrays, Notices]:
    """All images of a folder.

    Args:
        folder: Holds `class/image`.
        settings: The same for every image.
        limits: Caps on each file, and on all pixels together.
        patients: Whether each image belongs to a patient, who becomes the group: the folder of `class/patient/image`,
            or the patient ID of a DICOM file `class/image`.

    Returns:
        Arrays of the NPZ format, and what was changed.

    Raises:
        UnusableFiles: Naming all that cannot be used.
        InvalidDataset: There are no images, or they are too large together.
    """
    files = _image_files(folder)
    images = _room(len(files), settings, limits)
    errors, notices, groups = ValidationErrors(), Notices(), list[str]()
    for row, path in enumerate(files):
        name = path.relative_to(folder)
        try:
            data = _read(path, folder, limits)
            groups.append(_group(name.parts, data, patients=patients))
            images[row], changes = prepare_picture(data, settings, limits)
            errors.good()
        except InvalidDataset as error:
            errors.bad(name.as_posix(), error.detail)
        else:
            for change in changes:
                notices.add(change, [name.as_posix()])
    errors.raise_if_any()
    return _arrays(images, [path.relative_to(folder).parts[0] for path in files], groups if patients else None), notices


def _image_files(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix.casefold() in SUFFIXES)
    if not paths:
        raise InvalidDataset(f"The folder has no images ({', '.join(SUFFIXES)}).")
    return paths


def _room(count: int, settings: PrepareSettings, limits: Limits) -> Images:
    channels = 1 if settings.colour is Colour.GREY else 3
    if count * settings.height * settings.width * channels > limits.uncompressed_bytes:
        raise InvalidDataset(
            f"The images unpack to more than {limits.uncompressed_bytes} bytes. Choose a smaller size."
        )
    return np.empty((count, settings.height, settings.width, channels), dtype=np.uint8)


def _read(path: Path, folder: Path, limits: Limits) -> bytes:
    if not path.is_file() or path.resolve() != folder.resolve() / path.relative_to(folder):
        raise InvalidDataset("It is not a plain file, or a link leads to it. Copy the file itself.")
    if path.stat().st_size > limits.image_file_bytes:
        raise InvalidDataset("The file is too large for an image.")
    return path.read_bytes()


def _group(parts: tuple[str, ...], data: bytes, *, patients: bool) -> str:
    """The patient, or an empty word where nobody asks for one."""
    if not patients and len(parts) == 2:
        return ""
    if patients and len(parts) == 3:
        return parts[1]
    if patients and len(parts) == 2 and is_dicom(data):
        return dicom.read_patient(data)
    raise InvalidDataset(
        "Images must lie in folders class/patient, or be DICOM files in folders class."
        if patients
        else "Images must lie in folders class."
    )


def _arrays(images: Images, classes: list[str], groups: list[str] | None) -> Arrays:
    names, labels = np.unique(classes, return_inverse=True)
    arrays: Arrays = {"images": images, "labels": labels.astype(np.int64), "class_names": names}
    return arrays if groups is None else arrays | {"groups": np.array(groups)}
