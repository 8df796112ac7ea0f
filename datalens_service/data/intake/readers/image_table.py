"""Zip, tar or folder of images with `metadata.csv` or `metadata.jsonl`, as Hugging Face's imagefolder reads it.

    metadata.csv, 0001.png, …                   everything is for training
    train/metadata.csv, train/0001.png, …       with a test split in test/

The columns are "file_name" (relative to the table), "label" (a word or a whole number) and, if one person may have
several images, "group" or "patient" (`columns.py` has all names). Labels in the table count, folders do not; folders
that contradict the table are refused.
"""

from collections.abc import Sequence
from functools import partial

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.identifying_names import identifying_names
from datalens_service.data.intake.readers.base import Reader, RecordIndex, UploadIndex
from datalens_service.data.intake.readers.groups import GroupSources, find_groups, read_patients
from datalens_service.data.intake.readers.image_entries import (
    ImageEntry,
    by_split,
    decode_entries,
    holds_images,
    image_entries,
    is_metadata,
    names_of,
    without_wrapper,
)
from datalens_service.data.intake.readers.labels import column_of_texts
from datalens_service.data.intake.readers.metadata import Metadata, note_metadata, read_metadata
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.intake.untrusted.validation_errors import BadFile, UnusableFiles, ValidationErrors
from datalens_service.data.notices import NoticeCode

PRIVATE_READS = ("reading the upload",)

_PERSONS = (
    "Folders look like persons, and no column of the table says who an image is of. Add a column patient, so that "
    "persons are protected, or set ⟦ignore_groups⟧ to protect single images."
)
_CONTRADICTED = (
    "The folder says another class than the metadata: the upload has two sources of labels. Remove the column of "
    "labels from the table, or the class folders."
)


def recognises(source: Source, choices: ReadingChoices) -> bool:
    """Tell whether there are images and a table with a column of labels."""
    if not any(is_metadata(entry.filename) for entry in source.entries) or not holds_images(source):
        return False
    metadata = read_metadata(source, choices)
    return metadata is not None and metadata.has_labels


def index(source: Source, choices: ReadingChoices) -> UploadIndex:
    """Index labels by table, and groups by table or DICOM file."""
    metadata = read_metadata(source, choices)
    if metadata is None:
        raise InvalidDataset("metadata.csv must name every image with its label.")
    files = without_wrapper(image_entries(source, choices), 0)
    note_metadata(metadata, (file.entry.filename for file in files), source.notices)
    files = _with_rows(source, files, metadata, choices)
    split = by_split(files, choices.class_names, source.notices, labelled=True)
    _check_folders([*split.train, *split.test], metadata)
    patients = read_patients(source, [*split.train, *split.test])
    if metadata.group_name is None and not patients and not choices.ignore_groups:
        _refuse_folders_of_persons([*split.train, *split.test])
    sources = GroupSources(metadata, patients, choices.ignore_groups, {})
    return UploadIndex(
        _index(source, split.train, choices, sources, is_test=False),
        _index(source, split.test, choices, sources, is_test=True) if split.test else None,
    )


READER = Reader(
    name="image_table",
    title="a zip or tar of images with metadata.csv",
    layout="or `metadata.jsonl`: columns `file_name`, `label` and optionally `group` or `patient`, as Hugging Face's "
    "`imagefolder` reads them",
    suffixes=(".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz"),
    recognises=recognises,
    index=index,
    has_label_column=True,
)


def _index(
    source: Source, files: Sequence[ImageEntry], choices: ReadingChoices, sources: GroupSources, *, is_test: bool
) -> RecordIndex:
    labels = column_of_texts([_label(file, sources.metadata) for file in files])
    groups = partial(find_groups, files, None, sources, is_test=is_test)
    called = "the test split" if is_test else "the training split"
    return RecordIndex(called, labels, decode_entries(source, files, choices), groups, names_of(files))


def _with_rows(
    source: Source, files: Sequence[ImageEntry], metadata: Metadata, choices: ReadingChoices
) -> list[ImageEntry]:
    """Keep the files that the table names; the others are refused, or left out where the choices allow it."""
    errors, found = ValidationErrors(), list[ImageEntry]()
    for file in files:
        if metadata.find_row(file.entry.filename) is not None:
            errors.good()
            found.append(file)
        elif choices.skip_unreadable:
            source.notices.add(NoticeCode.UNREADABLE_LEFT_OUT, [file.entry.filename])
        else:
            errors.bad(
                file.entry.filename,
                f"No line of {metadata.names[0]} names this image. Add one, remove the image, or set "
                "⟦skip_unreadable⟧.",
            )
    errors.raise_if_any()
    return found


def _refuse_folders_of_persons(files: Sequence[ImageEntry]) -> None:
    """Refuse folders that are named like persons if there is no column of groups, which they may stand for."""
    folders = dict.fromkeys(file.parts[-2] for file in files if len(file.parts) > 1)
    persons = identifying_names(list(folders))
    if persons:
        raise UnusableFiles([BadFile(name=f"{name}/", reason=_PERSONS) for name in persons], len(folders))


def _check_folders(files: Sequence[ImageEntry], metadata: Metadata) -> None:
    """Refuse images in a folder that is named like a label, but not like theirs."""
    labels = {_label(file, metadata).casefold() for file in files}
    errors = ValidationErrors()
    for file in files:
        folder = file.parts[0].casefold() if len(file.parts) > 1 else ""
        if folder in labels and folder != _label(file, metadata).casefold():
            errors.bad(file.entry.filename, _CONTRADICTED)
        else:
            errors.good()
    errors.raise_if_any()


def _label(file: ImageEntry, metadata: Metadata | None) -> str:
    row = None if metadata is None else metadata.find_row(file.entry.filename)
    return (row.label if row is not None else None) or ""
