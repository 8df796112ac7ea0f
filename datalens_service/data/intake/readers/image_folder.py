"""Zip, tar or folder of class folders with images.

    class/name.png                              everything is for training
    train/class/name.png, test/class/name.png   with a test split
    class/patient/name.png                      everything of one patient is one privacy unit
    class/name.dcm                              likewise, by the patient ID of the files, where images are prepared

A `metadata.csv` or `metadata.jsonl` with a column of groups tells which images belong to one privacy unit, for example
to one person (`metadata.py`); with a column of labels as well, folders do not count (`image_table.py`).

Folders around all of this are allowed. Notes and hidden files are ignored and noted; so is a folder "val" (see `npz`).
Anything else that is not an image is refused. Records are ordered by name, classes by the names of their folders. All
images have the size and mode (8-bit grey or RGB) of the first; an EXIF orientation is applied, other metadata dropped.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.readers.base import Reader, RecordIndex, UploadIndex
from datalens_service.data.intake.readers.groups import GroupSources, find_groups, persons_among, read_patients
from datalens_service.data.intake.readers.image_entries import (
    LAYOUTS,
    ImageEntry,
    by_split,
    decode_entries,
    holds_images,
    image_entries,
    is_ignored,
    names_of,
    split_named,
    without_wrapper,
)
from datalens_service.data.intake.readers.labels import column_of_texts
from datalens_service.data.intake.readers.metadata import note_metadata, read_metadata
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.source import Source

PRIVATE_READS = ("reading the upload",)

_IN_CLASS: Final = 2
_IN_PATIENT: Final = 3
"""Number of parts of class/patient/name; class/name has one less."""


def recognises(source: Source, choices: ReadingChoices) -> bool:
    return holds_images(source)


def index(source: Source, choices: ReadingChoices) -> UploadIndex:
    """Index labels by folder, and groups by table, folder or DICOM file."""
    metadata = read_metadata(source, choices)
    files = without_wrapper(image_entries(source, choices), _IN_CLASS - 1)
    note_metadata(metadata, (file.entry.filename for file in files), source.notices)
    split = by_split(files, choices.class_names, source.notices)
    for part in (split.train, split.test):
        _check_layout(part, has_splits=split.train != files)
    patients = read_patients(source, [*split.train, *split.test])
    sources = GroupSources(metadata, patients, choices.ignore_groups, {})
    classes = sorted({file.parts[0] for file in split.train})
    return UploadIndex(
        _index(source, split.train, choices, sources, is_test=False),
        _index(source, split.test, choices, sources, is_test=True) if split.test else None,
        empty_classes=_empty_classes(source, [*split.train, *split.test]),
        persons_as_classes=tuple(persons_among(classes, _named(split.train), patients)),
    )


READER = Reader(
    name="image_folder",
    title="a zip or tar of class folders",
    layout="`class/name.png`, or `train/class/name.png` and `test/class/name.png`; "
    "`class/patient/name.png` where patients are the units; PNG or JPEG, or what is prepared",
    suffixes=(".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz"),
    recognises=recognises,
    index=index,
)


def _index(
    source: Source, files: Sequence[ImageEntry], choices: ReadingChoices, sources: GroupSources, *, is_test: bool
) -> RecordIndex:
    labels = column_of_texts([file.parts[0] for file in files])
    folders = [file.parts[1] for file in files] if len(files[0].parts) == _IN_PATIENT else None
    groups = partial(find_groups, files, folders, sources, is_test=is_test)
    called = "the test split" if is_test else "the training split"
    return RecordIndex(called, labels, decode_entries(source, files, choices), groups, names_of(files))


def _check_layout(files: Sequence[ImageEntry], *, has_splits: bool) -> None:
    """Refuse files that do not lie in class folders, or in folders of persons within them."""
    depths = {len(file.parts) for file in files}
    if has_splits and 1 in depths:
        raise InvalidDataset(f"Folders train and test are splits, and images lie in them without classes. {LAYOUTS}")
    if not depths <= {_IN_CLASS} and not depths <= {_IN_PATIENT}:
        raise InvalidDataset(f"Images do not lie in class folders, or not all at the same depth. {LAYOUTS}")
    if depths == {_IN_PATIENT} and any(split_named(file.parts[1]) for file in files):
        raise InvalidDataset(f"Folders train and test lie inside class folders: put the classes into them. {LAYOUTS}")


def _empty_classes(source: Source, files: Sequence[ImageEntry]) -> tuple[str, ...]:
    """List folders beside those of classes in which there is no image."""
    above = {file.entry.filename.removesuffix("/".join(file.parts)) for file in files}
    names = {file.parts[0] for file in files}
    beside = {folder.removeprefix(top) for folder in source.folders for top in above if folder.startswith(top)}
    return tuple(sorted(one for one in beside if "/" not in one and one not in names and not is_ignored(f"{one}/x")))


def _named(files: Sequence[ImageEntry]) -> list[tuple[str, str]]:
    return [(file.parts[0], file.entry.filename) for file in files]
