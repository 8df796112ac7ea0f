"""WebDataset: a tar in which the files of one record have one name and different endings.

    0001.png  0001.cls                  a label as text: a word, or a number from 0
    0001.jpg  0001.json                 a label in the member "label" (or "cls"), a unit in "group"
    train/0001.png …, test/0001.png …   with a test split

A `__classes.json__` or `classes.json` at the top with `class_names`, as our own export writes it, names the numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from datalens_service.data.dataset import Split
from datalens_service.data.notices import NoticeCode
from datalens_service.data.privacy_units import UnitDeclaration, identities
from datalens_service.data.readers.base import ClassNames, Reader, Upload, build_upload
from datalens_service.data.readers.image_entries import (
    TRAIN,
    UNUSED,
    ImageEntry,
    check_entry,
    holds_images,
    read_images,
    split_of,
)
from datalens_service.data.readers.labels import numbered
from datalens_service.data.readers.metadata import normal
from datalens_service.data.untrusted.entries import Entry, refusing
from datalens_service.data.untrusted.images import is_image_name
from datalens_service.data.untrusted.source import Source
from datalens_service.errors import InvalidDataset

_LABEL_ENDINGS = ("cls", "json")
_CLASSES = ("__classes.json__", "classes.json")
_LABEL_BYTES = 2**16
_UNREADABLE = "At least one label cannot be read. Write each as text into <key>.cls, or as label into <key>.json."


class _Record(NamedTuple):
    file: ImageEntry
    label: str
    group: str | None


def recognises(source: Source) -> bool:
    """Whether the file is a tar with images and labels beside them."""
    endings = {_key(entry.filename)[1] for entry in source.entries if not _is_public(entry.filename)}
    return source.is_tar and bool(endings & {*_LABEL_ENDINGS}) and holds_images(source)


def read(source: Source, *, class_names: ClassNames | None, units: UnitDeclaration | None) -> Upload:
    """Read a shard.

    Args:
        source: The opened file.
        class_names: Public names; by default those of classes.json, the words in sorted order, or "0", "1", ….
        units: What one unit is, if the records have groups.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    records = [record for record in _records(source) if split_of(record.file) not in UNUSED]
    records.sort(key=lambda record: split_of(record.file) != TRAIN)
    count = sum(split_of(record.file) == TRAIN for record in records)
    if count == 0:
        raise InvalidDataset("There are no training images with a label.")
    labels, names = numbered([record.label for record in records], class_names or _names_in(source), source.notices)
    files = [record.file for record in records]
    images = read_images(source, files[:count], None)
    train = Split(images, labels[:count], _units(records[:count]))
    test = Split(read_images(source, files[count:], images[0]), labels[count:]) if files[count:] else None
    return build_upload(train, test, names, units)


READER = Reader(
    name="webdataset",
    title="a tar or tar.gz of a WebDataset",
    layout="`key.png` with `key.cls` or `key.json`",
    suffixes=(".tar", ".gz", ".tgz"),
    recognises=recognises,
    read=read,
)


def _records(source: Source) -> list[_Record]:
    """One for each image, in stored order."""
    beside = {_key(entry.filename): entry for entry in source.entries}
    records = []
    for entry in source.entries:
        if is_image_name(entry.filename, source.decoder.suffixes):
            check_entry(entry, source.limits, source.decoder)
            records.append(_record(source, entry, beside))
    if len({_key(record.file.entry.filename)[0] for record in records}) != len(records):
        raise InvalidDataset("At least one record has two images. Put one image into each.")
    unused = (record.file.entry.filename for record in records if split_of(record.file) in UNUSED)
    source.notices.add(NoticeCode.IGNORED_SPLIT, unused)
    return records


def _record(source: Source, image: Entry, beside: Mapping[tuple[str, str], Entry]) -> _Record:
    key, _ = _key(image.filename)
    file = ImageEntry(tuple(normal(image.filename).split("/")), image)
    if (text := beside.get((key, "cls"))) is not None:
        return _Record(file, _text(source, text).strip(), None)
    if (entry := beside.get((key, "json"))) is None:
        raise InvalidDataset("At least one image has no label. Add <key>.cls or <key>.json beside <key>.png.")
    with refusing(_UNREADABLE):
        content: dict[str, Any] = json.loads(_text(source, entry))
        label = content["label"] if "label" in content else content["cls"]
        group = content.get("group")
        if isinstance(label, bool) or not isinstance(label, str | int) or not isinstance(group, str | int | None):
            raise TypeError
    return _Record(file, str(label), None if group is None else str(group))


def _text(source: Source, entry: Entry) -> str:
    if entry.file_size > _LABEL_BYTES:
        raise InvalidDataset(_UNREADABLE)
    with refusing(_UNREADABLE):
        return source.head(entry, entry.file_size).decode()


def _key(name: str) -> tuple[str, str]:
    """Key and ending: WebDataset cuts at the first dot of the file name."""
    folder, slash, last = name.rpartition("/")
    key, _, ending = last.partition(".")
    return folder + slash + key, re.sub(r"^.*\.", "", ending).casefold()


def _is_public(name: str) -> bool:
    return name in _CLASSES


def _names_in(source: Source) -> ClassNames | None:
    entries = [entry for entry in source.entries if _is_public(entry.filename)]
    if not entries:
        return None
    with refusing("classes.json must hold the names of the classes as class_names."):
        return tuple(str(name) for name in json.loads(_text(source, entries[0]))["class_names"])


def _units(records: list[_Record]) -> Any:
    groups = [record.group for record in records]
    if all(group is None for group in groups):
        return None
    if any(group is None for group in groups):
        raise InvalidDataset("Either all records have a group, or none.")
    return identities(groups)
