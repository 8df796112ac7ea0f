"""WebDataset: a tar in which the files of one record have one name and different endings.

    0001.png  0001.cls                  a label as text: a word, or a number from 0
    0001.jpg  0001.json                 a label in the member "label" (or "cls"), a unit in "group" (or "patient", …)
    train/0001.png …, test/0001.png …   with a test split

A file "__classes.json__" or "classes.json" with "class_names", as our own export writes it, names the numbers.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.readers.base import ClassNames, Groups, Reader, RecordIndex, UploadIndex
from datalens_service.data.intake.readers.columns import GROUP, find_column, group_word
from datalens_service.data.intake.readers.groups import GroupSources, find_groups, read_patients
from datalens_service.data.intake.readers.image_entries import (
    ImageEntry,
    by_split,
    check_entry,
    decode_entries,
    holds_images,
    is_ignored,
    kind_in,
    names_of,
    without_wrapper,
)
from datalens_service.data.intake.readers.labels import column_of_texts, column_of_values
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.entries import FileEntry, refusing
from datalens_service.data.intake.untrusted.file_kinds import is_image_name
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.intake.untrusted.validation_errors import UnusableFiles, ValidationErrors
from datalens_service.data.notices import NoticeCode

PRIVATE_READS = ("reading the upload",)

_LABEL_ENDINGS = ("cls", "json")
_CLASSES = ("__classes.json__", "classes.json")
_LABEL_BYTES, _CLASSES_BYTES = 2**16, 2**20
_UNREADABLE = "At least one label cannot be read. Write each as text into <key>.cls, or as label into <key>.json."
_NO_LABEL = "The image has no label. Add <key>.cls or <key>.json beside it."
_SAME_KEY = (
    "Another image has the same key: a key ends at the first dot of the name. Put one image into each record, and "
    "write keys without dots."
)
_NO_NAMES = "classes.json must name the classes as exports of this product do."


class _Record(NamedTuple):
    file: ImageEntry
    label: object
    group: str | None
    group_column: str


def recognises(source: Source, choices: ReadingChoices) -> bool:
    """Tell whether the file is a tar with images and labels beside them."""
    endings = {_key(entry.filename)[1] for entry in source.entries if not _is_public(entry.filename)}
    return source.is_tar and bool(endings & {*_LABEL_ENDINGS}) and holds_images(source)


def index(source: Source, choices: ReadingChoices) -> UploadIndex:
    """Index labels and groups of a shard."""
    records = {record.file.entry.filename: record for record in _records(source, choices)}
    files = without_wrapper([record.file for record in records.values()], 0)
    split = by_split(files, None, source.notices, labelled=True)
    names = _names_in(source)
    train = [records[file.entry.filename] for file in split.train]
    test = [records[file.entry.filename] for file in split.test]
    if not train:
        raise InvalidDataset("There are no training images with a label.")
    # A group in the JSON beside an image counts; files are not looked into then.
    with_groups = any(record.group is not None for record in train)
    patients = {} if with_groups else read_patients(source, [*split.train, *split.test])
    sources = GroupSources(None, patients, choices.ignore_groups, {})
    return UploadIndex(
        _index(train, names, source, choices, sources, is_test=False),
        _index(test, names, source, choices, sources, is_test=True) if test else None,
    )


READER = Reader(
    name="webdataset",
    title="a tar of a WebDataset",
    layout="`key.png` with `key.cls` or `key.json`",
    suffixes=(".tar", ".gz", ".tgz", ".bz2", ".xz"),
    recognises=recognises,
    index=index,
)


def _index(
    records: list[_Record],
    names: ClassNames | None,
    source: Source,
    choices: ReadingChoices,
    sources: GroupSources,
    *,
    is_test: bool,
) -> RecordIndex:
    called = "the test split" if is_test else "the training split"
    groups = partial(_groups, records, sources, is_test=is_test)
    labels = [record.label for record in records]
    texts = [label for label in labels if isinstance(label, str)]
    column = column_of_texts(texts) if len(texts) == len(labels) else column_of_values(labels)
    reading = decode_entries(source, [record.file for record in records], choices)
    return RecordIndex(called, column._replace(names=names), reading, groups, names_of([one.file for one in records]))


def _records(source: Source, choices: ReadingChoices) -> list[_Record]:
    """List one record for each image, in stored order.

    Raises:
        UnusableFiles: Names images without a label, and images of one key.
    """
    beside = {_key(entry.filename): entry for entry in source.entries}
    records, errors, seen = list[_Record](), ValidationErrors(), dict[str, str]()
    for entry in source.entries:
        if not _is_image(source, entry):
            continue
        try:
            check_entry(entry, source)
            record = _record(source, entry, beside, choices)
            if choices.skip_unreadable and record.label in (None, ""):
                raise InvalidDataset(_NO_LABEL)
        except InvalidDataset as error:
            if choices.skip_unreadable and not isinstance(error, UnusableFiles):
                source.notices.add(NoticeCode.UNREADABLE_LEFT_OUT, [entry.filename])
            else:
                errors.bad(entry.filename, error.text)
            continue
        if seen.setdefault(_key(entry.filename)[0], entry.filename) == entry.filename:
            errors.good()
            records.append(record)
        else:
            errors.bad(entry.filename, _SAME_KEY)
    errors.raise_if_any()
    return records


def _is_image(source: Source, entry: FileEntry) -> bool:
    """Tell whether a file of a record is an image, readable or not; captions and arrays are others."""
    if is_ignored(entry.filename) or _key(entry.filename)[1] in _LABEL_ENDINGS or _is_public(entry.filename):
        return False
    kind = kind_in(source, entry)
    return is_image_name(entry.filename) or (kind is not None and kind.is_picture)


def _record(
    source: Source, image: FileEntry, beside: Mapping[tuple[str, str], FileEntry], choices: ReadingChoices
) -> _Record:
    key, _ = _key(image.filename)
    file = ImageEntry(tuple(image.filename.split("/")), image)
    text, entry = beside.get((key, "cls")), beside.get((key, "json"))
    if text is None and entry is None:
        raise InvalidDataset(_NO_LABEL)
    with refusing(_UNREADABLE):
        content = {} if entry is None else dict[str, Any](json.loads(_text(source, entry)))
        found = find_column("The JSON beside an image", list(content), GROUP, None, "groups", "⟦group_column⟧")
        chosen = choices.group_column or found
        group = None if chosen is None else content.get(chosen)
        label = content["label" if "label" in content else "cls"] if text is None else _text(source, text).strip()
        if not isinstance(label, str | int | float | None) or not isinstance(group, str | int | None):
            raise TypeError
    return _Record(file, label, None if group is None else str(group), chosen or "group")


def _text(source: Source, entry: FileEntry, most: int = _LABEL_BYTES, refusal: str = _UNREADABLE) -> str:
    if entry.file_size > most:
        raise InvalidDataset(refusal)
    with refusing(refusal):
        return source.head(entry, entry.file_size).decode()


def _key(name: str) -> tuple[str, str]:
    """Split a name into key and ending: WebDataset cuts at the first dot of the file name."""
    folder, slash, last = name.rpartition("/")
    key, _, ending = last.partition(".")
    return folder + slash + key, re.sub(r"^.*\.", "", ending).casefold()


def _is_public(name: str) -> bool:
    return name.rpartition("/")[2] in _CLASSES


def _names_in(source: Source) -> ClassNames | None:
    entries = [entry for entry in source.entries if _is_public(entry.filename)]
    if not entries:
        return None
    with refusing(_NO_NAMES):
        content = _text(source, entries[0], _CLASSES_BYTES, _NO_NAMES)
        return tuple(str(name) for name in json.loads(content)["class_names"])


def _groups(records: list[_Record], sources: GroupSources, *, is_test: bool) -> Groups:
    """Read groups from the JSON beside the images, else from the patients of DICOM files."""
    groups = [record.group for record in records]
    if not any(group is not None for group in groups):
        return find_groups([record.file for record in records], None, sources, is_test=is_test)
    if not (is_test or sources.ignore) and None in groups:
        raise InvalidDataset("Either all records have a group, or none.")
    return Groups.from_names(groups, group_word(records[0].group_column))
