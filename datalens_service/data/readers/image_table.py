"""Zip or tar of images with `metadata.csv` or `metadata.jsonl`, as Hugging Face's `imagefolder` reads it.

    metadata.csv, 0001.png, …                   everything is for training
    train/metadata.csv, train/0001.png, …       with a test split in test/

The columns are `file_name` (relative to the table), `label` (a word, or a number from 0) and, if one person may
have several images, `group`. Labels in the table count, folders do not. One folder around all of this is allowed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence

from datalens_service.data.dataset import Images, Split
from datalens_service.data.privacy_units import UnitDeclaration
from datalens_service.data.readers.base import ClassNames, Reader, Upload, build_upload
from datalens_service.data.readers.image_entries import (
    TRAIN,
    ImageEntry,
    holds_images,
    image_entries,
    in_known_splits,
    read_images,
    split_of,
)
from datalens_service.data.readers.labels import numbered
from datalens_service.data.readers.metadata import delimiter_of, is_metadata, normal, read_metadata, units_of
from datalens_service.data.untrusted.source import Source
from datalens_service.errors import InvalidDataset

_LABEL = "label"
_HEAD_BYTES = 2**16


def recognises(source: Source) -> bool:
    """Whether there are images and a table with a column of labels."""
    tables = [entry for entry in source.entries if is_metadata(entry.filename)]
    return any(_has_labels(source.head(entry, _HEAD_BYTES)) for entry in tables) and holds_images(source)


def read(source: Source, *, class_names: ClassNames | None, units: UnitDeclaration | None) -> Upload:
    """Read images with a table of labels.

    Args:
        source: The opened file.
        class_names: Public names; by default the words in the table in sorted order, or "0", "1", ….
        units: What one unit is, if the table has groups.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    metadata = read_metadata(source)
    files = in_known_splits(source, image_entries(source))
    if metadata is None or metadata.labels is None or not files:
        raise InvalidDataset("metadata.csv must name every image with its label.")
    # Training records first, so that both splits are slices of one list.
    files.sort(key=lambda file: split_of(file) != TRAIN)
    labels, names = numbered(_labels_of(files, metadata.labels), class_names, source.notices)
    count = sum(split_of(file) == TRAIN for file in files)
    if count == 0:
        raise InvalidDataset("There are no training images. Put them beside metadata.csv, or into train/.")
    train_names = [file.entry.filename for file in files[:count]]
    identity = None if metadata.groups is None else units_of(train_names, metadata.groups)
    images = read_images(source, files[:count], None)
    train = Split(images, labels[:count], identity)
    test = Split(_test_images(source, files[count:], images), labels[count:]) if files[count:] else None
    return build_upload(train, test, names, units)


READER = Reader(
    name="image_table",
    title="a zip, tar or tar.gz of images with metadata.csv",
    layout="or `metadata.jsonl`: columns `file_name`, `label` and optionally `group` or `patient`, as Hugging Face's "
    "`imagefolder` reads them",
    suffixes=(".zip", ".tar", ".gz", ".tgz"),
    recognises=recognises,
    read=read,
)


def _has_labels(head: bytes) -> bool:
    line = head.decode("utf-8-sig", errors="replace").partition("\n")[0].strip()
    if line.startswith("{"):
        try:
            return _LABEL in json.loads(line)
        except (ValueError, RecursionError):
            return False
    return _LABEL in next(csv.reader([line], delimiter=delimiter_of(line)), [])


def _labels_of(files: Sequence[ImageEntry], labels: Mapping[str, str]) -> list[str]:
    try:
        return [labels[normal(file.entry.filename)] for file in files]
    except KeyError:
        # Without the name of the file: it is private.
        raise InvalidDataset("metadata.csv must name every image with its label.") from None


def _test_images(source: Source, files: Sequence[ImageEntry], train: Images) -> Images:
    return read_images(source, files, train[0])
