"""Who or what the images of an archive belong to: by its table, by DICOM files, or by the folders that they lie in.

A table comes first, then the folder between class and image, then the patient ID of DICOM files. Whatever is taken
must put all files of one patient ID into one group.
"""

import re
from collections.abc import Mapping, Sequence

from datalens_service.data.readers.base import Groups
from datalens_service.data.readers.image_entries import ImageEntry
from datalens_service.data.readers.metadata import Metadata
from datalens_service.data.untrusted.file_kinds import HEAD_BYTES, is_dicom
from datalens_service.data.untrusted.images import NoPatient, Patient
from datalens_service.data.untrusted.source import Source
from datalens_service.data.untrusted.validation_errors import ValidationErrors
from datalens_service.errors import InvalidDataset

_NO_PATIENT = (
    "This file names no patient, while other files do. Name the patient of each image in a metadata.csv with the "
    "columns file_name and patient, or set ⟦ignore_groups⟧ to protect single images."
)
_TORN = (
    "This file has the patient ID of files that are in another group. Put all images of one patient into one group, or "
    "set ⟦ignore_groups⟧ to protect single images."
)


def read_patients(source: Source, files: Sequence[ImageEntry]) -> dict[str, Patient]:
    """Whom the DICOM files among these show, by their names; files that do not say are not in it."""
    found, unreadable = dict[str, Patient](), dict[str, Patient]()
    for file in files:
        # Only DICOM files say so: others are not read a second time.
        if is_dicom(source.head(file.entry, HEAD_BYTES)):
            try:
                patient = source.decoder.read_patient(source.head(file.entry, file.entry.file_size))
            except NoPatient:
                continue
            except InvalidDataset:
                # Somebody of its own, until it is refused for what it is, or left out.
                unreadable[file.entry.filename] = Patient(f"unreadable {file.entry.filename}", "")
                continue
            if patient is not None:
                found[file.entry.filename] = patient
    return found | unreadable if found else {}


def find_groups(
    files: Sequence[ImageEntry],
    folders: Sequence[str] | None,
    metadata: Metadata | None,
    patients: Mapping[str, Patient],
    *,
    ignore: bool,
) -> Groups:
    """Groups of training images.

    Args:
        ignore: Whether every image is a unit, whatever says otherwise.

    Raises:
        UnusableFiles: Naming files without a group, and files of one patient in different groups.
    """
    if ignore:
        named = metadata is not None and metadata.group_name is not None
        return Groups(None, ignored=named or folders is not None or bool(patients))
    if metadata is not None and metadata.group_name is not None:
        groups = Groups(_from_table(files, metadata), metadata.group_name)
    elif folders is not None:
        groups = Groups(tuple(folders))
    elif patients:
        return Groups(_from_patients(files, patients), "patient")
    else:
        return Groups()
    _check_whole(files, groups.names or (), patients)
    return groups


def persons_among(
    classes: Sequence[str], files: Sequence[tuple[str, str]], patients: Mapping[str, Patient]
) -> list[str]:
    """Class folders that have the ID or the name of a patient who is shown in them."""
    named = {
        label
        for label, name in files
        if (patient := patients.get(name)) is not None and _plain(label) in (_plain(patient.id), _plain(patient.name))
    }
    return [name for name in classes if name in named]


def _from_table(files: Sequence[ImageEntry], metadata: Metadata) -> tuple[str, ...]:
    errors, names = ValidationErrors(), list[str]()
    for file in files:
        row = metadata.find_row(file.entry.filename)
        if row is None or row.group is None:
            errors.bad(file.entry.filename, f"No line of {metadata.names[0]} names its {metadata.group_name}. Add one.")
        else:
            errors.good()
            names.append(row.group)
    errors.raise_if_any()
    return tuple(names)


def _from_patients(files: Sequence[ImageEntry], patients: Mapping[str, Patient]) -> tuple[str, ...]:
    errors = ValidationErrors()
    for file in files:
        if file.entry.filename in patients:
            errors.good()
        else:
            errors.bad(file.entry.filename, _NO_PATIENT)
    errors.raise_if_any()
    return tuple(patients[file.entry.filename].id for file in files)


def _check_whole(files: Sequence[ImageEntry], names: Sequence[str], patients: Mapping[str, Patient]) -> None:
    errors, group_of = ValidationErrors(), dict[str, str]()
    for file, group in zip(files, names, strict=True):
        patient = patients.get(file.entry.filename)
        if patient is not None and group_of.setdefault(patient.id, group) != group:
            errors.bad(file.entry.filename, _TORN)
        else:
            errors.good()
    errors.raise_if_any()


def _plain(name: str) -> tuple[str, ...]:
    """Letters and digits of a name in any order of its words, so that "Smith^John" is "john_smith"."""
    return tuple(sorted(re.findall(r"[^\W_]+", name.casefold()))) or ("",)
