"""Zip or tar of class folders with PNG or JPEG files.

    class/name.png                              everything is for training
    train/class/name.png, test/class/name.png   with a test split
    class/patient/name.png                      everything of one patient is one privacy unit, if units are declared
    class/name.dcm                              likewise, by the patient ID of the files, where images are prepared

A `metadata.csv` or `metadata.jsonl` at the top or in `train/`, with the columns `file_name` (relative to it) and
`group`, says which training images belong to one privacy unit, for example to one person (`metadata.py`).

One folder around all of this is allowed. Names with a leading dot, `__MACOSX`, the files that desktops leave behind
and the `classes.json` and `card.json` of our own export are ignored; so is a `val`, `valid` or `validation` folder
(see `npz`). Images among them are noted. Anything else that is not an image is refused. Records are ordered by name,
classes by the names of their folders. All images have the size and mode (8-bit grey or RGB) of the first; an EXIF
orientation is applied, other metadata is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from datalens_service.data.dataset import Split, UnitIds
from datalens_service.data.preparation.kinds import is_dicom
from datalens_service.data.privacy_units import UnitDeclaration, identities
from datalens_service.data.readers.base import ClassNames, Reader, Upload, build_upload
from datalens_service.data.readers.image_entries import (
    SPLITS,
    TEST,
    TRAIN,
    ImageEntry,
    holds_images,
    image_entries,
    in_known_splits,
    read_images,
)
from datalens_service.data.readers.labels import note_names
from datalens_service.data.readers.metadata import read_metadata, units_of
from datalens_service.data.untrusted.images import HEAD_BYTES
from datalens_service.data.untrusted.source import Source
from datalens_service.data.untrusted.validation_errors import ValidationErrors
from datalens_service.errors import InvalidDataset

_SEVERAL_IMAGES = (
    "DICOM files name patients who have several images. Declare records_per_unit, the most training images of one "
    "patient, or bring the files through datalens prepare without --patients to protect single images."
)
_PATIENT = 2
_WITH_PATIENT = 4
"""Where the patient stands in (split, class, patient, name), and how long that is."""


def recognises(source: Source) -> bool:
    """Whether the file is an archive with a PNG or JPEG in it."""
    return holds_images(source)


def read(source: Source, *, class_names: ClassNames | None, units: UnitDeclaration | None) -> Upload:
    """Read an archive of class folders.

    Args:
        source: The opened file.
        class_names: Public names; by default the names of the folders in sorted order. If they contain every
            folder's name, they set the order (and may declare classes without images); if they contain none,
            they rename the sorted folders.
        units: What one unit is, if there is a metadata.csv with groups.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    metadata = read_metadata(source)
    files = _files(source, grouped=units is not None)
    directories = sorted({file.parts[1] for file in files})
    names = class_names or tuple(directories)
    label_of = _label_of(directories, names)
    note_names(directories, label_of, names, source.notices)
    train_files, test_files = ([file for file in files if file.parts[0] == split] for split in (TRAIN, TEST))
    if not train_files:
        raise InvalidDataset("There are no training images. Put them into class folders, or into train/<class>/.")
    train = _split(source, train_files, label_of, None)
    if metadata is not None and metadata.groups is not None:
        train = replace(train, units=units_of((file.entry.filename for file in train_files), metadata.groups))
    elif all(len(file.parts) == _WITH_PATIENT for file in train_files):
        train = replace(train, units=identities(file.parts[_PATIENT] for file in train_files))
    elif units is not None:
        train = replace(train, units=_patients(source, train_files))
    else:
        _check_single_patients(source, train_files)
    test = _split(source, test_files, label_of, train) if test_files else None
    return build_upload(train, test, names, units)


READER = Reader(
    name="image_folder",
    title="a zip, tar or tar.gz of class folders",
    layout="`class/name.png`, or `train/class/name.png` and `test/class/name.png`; "
    "`class/patient/name.png` where patients are the units; PNG or JPEG, or what is prepared",
    suffixes=(".zip", ".tar", ".gz", ".tgz"),
    recognises=recognises,
    read=read,
)


def _files(source: Source, *, grouped: bool) -> list[ImageEntry]:
    """Images of the training and test split as (split, class, name) or (split, class, patient, name), by name."""
    files = in_known_splits(source, _with_split(image_entries(source), grouped=grouped))
    if not files:
        raise InvalidDataset("The archive holds no PNG or JPEG images in class folders.")
    return files


def _with_split(files: list[ImageEntry], *, grouped: bool) -> list[ImageEntry]:
    """All with their split in front; with the patient behind the class, if that is how they lie."""
    depths = {len(file.parts) for file in files}
    if all(file.parts[0] in SPLITS for file in files) and (depths == {3} or (grouped and depths == {4})):
        return files
    if depths == {2} or (grouped and depths == {3}):
        return [ImageEntry((TRAIN, *file.parts), file.entry) for file in files]
    raise InvalidDataset(
        "Arrange the images as <class>/<file>, or as train/<class>/<file> and test/<class>/<file>, without further "
        "folders. With records_per_unit, <class>/<patient>/<file> is accepted, too."
    )


def _patients(source: Source, files: Sequence[ImageEntry]) -> UnitIds | None:
    """Whose image each file says that it is; None if files do not say so.

    Raises:
        UnusableFiles: Naming those that do not, where others do.
    """
    errors, names = ValidationErrors(), list[str | None]()
    for file in files:
        try:
            names.append(_read_patient(source, file))
            errors.good()
        except InvalidDataset as error:
            errors.bad(file.entry.filename, error.detail)
    errors.raise_if_any()
    if not any(names):
        return None
    for file, name in zip(files, names, strict=True):
        if name is None:
            errors.bad(file.entry.filename, "Only DICOM files name their patient. Arrange class/patient/file instead.")
    errors.raise_if_any()
    return identities(names)


def _check_single_patients(source: Source, files: Sequence[ImageEntry]) -> None:
    """Refuse several images of one patient where nothing was declared: the unit of a record never changes later.

    Raises:
        UnusableFiles: Naming those whose patient has others.
    """
    patients = dict[str, list[str]]()
    for file in files:
        # One that names nobody is an image like any other here.
        with suppress(InvalidDataset):
            patient = _read_patient(source, file)
            if patient is not None:
                patients.setdefault(patient, []).append(file.entry.filename)
    errors = ValidationErrors()
    for name in (name for names in patients.values() if len(names) > 1 for name in names):
        errors.bad(name, _SEVERAL_IMAGES)
    errors.raise_if_any()


def _read_patient(source: Source, file: ImageEntry) -> str | None:
    # Only DICOM files say so: others are not read a second time.
    if not is_dicom(source.head(file.entry, HEAD_BYTES)):
        return None
    return source.decoder.read_patient(source.head(file.entry, file.entry.file_size))


def _label_of(directories: Sequence[str], class_names: ClassNames) -> dict[str, int]:
    """Label of every folder: by name if the names are those of the folders, else by sorted position."""
    known = [directory for directory in directories if directory in class_names]
    if len(known) == len(directories):
        return {directory: class_names.index(directory) for directory in directories}
    if known or len(class_names) < len(directories):
        raise InvalidDataset("class_names must name every class folder, or rename all of them in sorted order.")
    return {directory: index for index, directory in enumerate(directories)}


def _split(source: Source, files: Sequence[ImageEntry], label_of: dict[str, int], like: Split | None) -> Split:
    images = read_images(source, files, None if like is None else like.images[0])
    return Split(images, np.array([label_of[file.parts[1]] for file in files], dtype=np.int64))
