"""The groups of the images of an archive: by its table, by DICOM files, or by their folders.

A table comes first, then the folder between class and image, then the patient ID of DICOM files. Each way
must put all files of one patient ID into one group.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.readers.base import Groups
from datalens_service.data.intake.readers.image_entries import ImageEntry
from datalens_service.data.intake.readers.metadata import Metadata
from datalens_service.data.intake.untrusted.file_kinds import HEAD_BYTES, is_dicom
from datalens_service.data.intake.untrusted.images import NoPatient, Patient
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.intake.untrusted.validation_errors import ValidationErrors
from datalens_service.data.privacy_units import group_key

_NO_PATIENT = (
    "This file names no patient, while other files do. Name the patient of each image in a metadata.csv with the "
    "columns file_name and patient, or set ⟦ignore_groups⟧ to protect single images."
)
_ANONYMISED = (
    "The DICOM files name no patient, as anonymised exports do, so nothing says which images show the same person. "
    "Name the patient of each image in a metadata.csv with the columns file_name and patient, or set ⟦ignore_groups⟧ "
    "to protect single images."
)
_TORN = (
    "This file has the patient ID of files that are in another group. Put all images of one patient into one group, or "
    "set ⟦ignore_groups⟧ to protect single images."
)


def read_patients(source: Source, files: Sequence[ImageEntry]) -> dict[str, Patient]:
    """Read the patients of the DICOM files among these, by file name; an unreadable file counts as its own patient."""
    found, unreadable = dict[str, Patient](), dict[str, Patient]()
    for file in files:
        # Only DICOM files say so: others are not read a second time.
        if is_dicom(source.head(file.entry, HEAD_BYTES)):
            try:
                patient = source.decoder.read_patient(source.head(file.entry, file.entry.file_size))
            except NoPatient:
                found[file.entry.filename] = Patient("", "")
                continue
            except InvalidDataset:
                # Somebody of its own, until it is refused for what it is, or left out.
                unreadable[file.entry.filename] = Patient(f"unreadable {file.entry.filename}", "")
                continue
            if patient is not None:
                found[file.entry.filename] = patient
    return found | unreadable if any(patient.id for patient in found.values()) else found


class GroupSources(NamedTuple):
    """Everything in an archive that may tell whom an image belongs to.

    Attributes:
        patients: Patients of DICOM files, by the names of the files, in all splits.
        ignore: True if every image is a unit in any case: then no image needs a group.
        group_of: The group of each patient ID that was met so far, by keys.
    """

    metadata: Metadata | None
    patients: Mapping[str, Patient]
    ignore: bool
    group_of: dict[str, str]


def find_groups(
    files: Sequence[ImageEntry], folders: Sequence[str] | None, sources: GroupSources, *, is_test: bool
) -> Groups:
    """Find the groups of the images of a split.

    A training image needs a group as soon as others have one. A test image does not, as no unit is made of it.

    Raises:
        UnusableFiles: Names files without a group, and files of one patient in different groups.
    """
    metadata, patients = sources.metadata, sources.patients
    if metadata is not None and metadata.group_name is not None:
        reason = f"No line of {metadata.names[0]} names its {metadata.group_name}. Add one."
        groups = _GroupOf(metadata.group_name, [_group_in_table(file, metadata) for file in files], reason)
    elif folders is not None:
        groups = _GroupOf("group", list(folders), "")
    else:
        groups = _groups_of_patients(files, patients)
    if not (sources.ignore or is_test):
        groups.refuse_without(files)
    if not sources.ignore:
        _refuse_torn(files, groups.names, sources)
    return Groups.from_names(groups.names, groups.word)


def persons_among(
    classes: Sequence[str], files: Sequence[tuple[str, str]], patients: Mapping[str, Patient]
) -> list[str]:
    """List class folders that have the ID or the name of a patient in them."""
    named = {
        label for label, name in files if (patient := patients.get(name)) is not None and _is_called(patient, label)
    }
    return [name for name in classes if name in named]


def _is_called(patient: Patient, label: str) -> bool:
    return any(said and _plain(label) == _plain(said) for said in patient)


def _group_in_table(file: ImageEntry, metadata: Metadata) -> str | None:
    row = metadata.find_row(file.entry.filename)
    return None if row is None else row.group


class _GroupOf(NamedTuple):
    """Groups of files in their order, and the reason why a file must have one; without a reason it need not."""

    word: str
    names: list[str | None]
    reason: str

    def refuse_without(self, files: Sequence[ImageEntry]) -> None:
        errors = ValidationErrors()
        for file, name in zip(files, self.names, strict=True):
            if name is None and self.reason:
                errors.bad(file.entry.filename, self.reason)
            else:
                errors.good()
        errors.raise_if_any()


def _groups_of_patients(files: Sequence[ImageEntry], patients: Mapping[str, Patient]) -> _GroupOf:
    shown = [patients.get(file.entry.filename) for file in files]
    names = [None if patient is None else patient.id or None for patient in shown]
    if any(name is not None for name in names):
        return _GroupOf("patient", names, _NO_PATIENT)
    return _GroupOf("patient", names, _ANONYMISED if any(patient is not None for patient in shown) else "")


def _refuse_torn(files: Sequence[ImageEntry], names: Sequence[str | None], sources: GroupSources) -> None:
    """Refuse files of one patient ID in different groups, in whatever splits."""
    errors = ValidationErrors()
    for file, name in zip(files, names, strict=True):
        patient = sources.patients.get(file.entry.filename)
        if patient is None or not patient.id or name is None:
            errors.good()
            continue
        group = group_key(name)
        if sources.group_of.setdefault(group_key(patient.id), group) != group:
            errors.bad(file.entry.filename, _TORN)
        else:
            errors.good()
    errors.raise_if_any()


def _plain(name: str) -> tuple[str, ...]:
    """Reduce a name to letters and digits in any order of its words, so that "Smith^John" is "john_smith"."""
    return tuple(sorted(re.findall(r"[^\W_]+", name.casefold()))) or ("",)
