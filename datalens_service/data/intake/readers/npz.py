"""NPZ, or a zip or tar of `.npy` files: arrays of images and labels.

Training images and labels are called `images` and `labels`, `x` and `y`, `X` and `y`, `data` and `targets` or
`labels`, `x_train` and `y_train` (Keras), or `train_images` and `train_labels` (MedMNIST); those of a test split
`test_images` and `test_labels`, or `x_test` and `y_test`.

An array "groups" (or "patient", "subject", "account", …) of integers or strings tells which training images belong to
one privacy unit, for example to one person, and an array "test_groups" does so for test images. An array `class_names`
of strings is read if it is there, and so is `preparation`, in which `datalens prepare` records what it did. Everything
else is ignored and noted, `val_*` too: a validation split would change the public number of records if it silently
joined the training records. An owner who wants it protected and used appends it to the training arrays.

Images are (n, height, width), (n, height, width, 1 or 3), (n, 1 or 3, height, width), or (n, side²) in grey: integers
in 0..255, or floats in [0, 1] or in [0, 255]. The range of each float image follows from that image alone. With
preparation, integers of more bits are read through the chosen window. Labels are integers, words, true and false, whole
floats, (n,) or (n, 1), or one-hot rows, (n, classes).
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import ValidationError

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import NOBODY, Images
from datalens_service.data.intake.preparation.arrays import check_image_header, convert_pixels
from datalens_service.data.intake.readers.base import (
    ClassNames,
    Groups,
    LabelColumn,
    Reader,
    ReadImages,
    RecordIndex,
    UploadIndex,
)
from datalens_service.data.intake.readers.columns import GROUP, group_word, is_person_column
from datalens_service.data.intake.readers.image_entries import is_ignored
from datalens_service.data.intake.readers.labels import check_label_header, column_of_array
from datalens_service.data.intake.reading_choices import ReadingChoices
from datalens_service.data.intake.untrusted.entries import Archive, FileEntry, refusing
from datalens_service.data.intake.untrusted.images import DecodedImages
from datalens_service.data.intake.untrusted.source import Source
from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation_settings import PrepareSettings

_SUFFIX = ".npy"
_CLASS_NAMES = "class_names"
PREPARATION: Final = "preparation"
"""Settings with which `datalens prepare` made the file, as JSON."""
_PREPARATION_CHARACTERS = 1000
UNIT_IDS: Final = "unit_ids"
"""Identities of units in the place of their names (`privacy_units.identities`)."""
GROUP_IDS: Final = "group_ids"
"""Likewise, identities of groups (`privacy_units.group_identities`); those of test images have `test_` in front."""
UNIT: Final = "unit"
"""The array with the word for one group."""
_GROUPS: Final = (*GROUP, "groups", "patients", "subjects", "persons", "participants", "accounts")
_NOT_PREPARED = "The array preparation is not what datalens prepare writes. Rename it, or leave it out."
_DAMAGED = "An array in the NPZ is damaged or not in NumPy's format. Save it again with numpy.savez_compressed."


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class _Split(NamedTuple):
    images: FileEntry
    labels: FileEntry


_IMAGES: Final = ("images", "train_images", "x_train", "X_train", "x", "X", "data", "image")
_LABELS: Final = ("labels", "train_labels", "y_train", "Y_train", "y", "Y", "targets", "target", "label")
_TEST_IMAGES: Final = ("test_images", "x_test", "X_test")
_TEST_LABELS: Final = ("test_labels", "y_test", "Y_test")


def recognises(source: Source, choices: ReadingChoices) -> bool:
    """Tell whether the file is an archive with NumPy arrays in it, and no folder."""
    arrays = _array_entries(source.entries)
    return bool(arrays) and source.head(arrays[0], len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX


def index(source: Source, choices: ReadingChoices) -> UploadIndex:
    """Index labels and groups of an NPZ."""
    archive = _opened(source)
    arrays = {entry.filename.removesuffix(_SUFFIX): entry for entry in _array_entries(archive.entries)}
    splits = _choose_splits(arrays)
    # All headers first: nothing is unpacked for an upload that is refused anyway.
    for split in splits.values():
        _check_headers(archive, split, choices)
    names = _names_in_file(archive, arrays)
    columns = {called: _column(archive, split, names) for called, split in splits.items()}
    records = [
        RecordIndex(called, columns[called], _reading(source, archive, split, choices))
        for called, split in splits.items()
    ]
    of_train, of_test = (_group_arrays(arrays, choices, split) for split in ("train", "test"))
    # Groups of test images say something only beside those of training images.
    of_test = of_test if of_train and len(records) > 1 else []
    _note_ignored(source, arrays, splits, [*of_train, *of_test])
    grouped = [
        replace(one, read_groups=partial(_read_groups, archive, arrays, present, one.called, len(one.labels.words)))
        for one, present in zip(records, (of_train, of_test), strict=False)
    ]
    test = grouped[1] if len(grouped) > 1 else None
    return UploadIndex(grouped[0], test, preparation=_read_preparation(archive, arrays))


READER = Reader(
    name="npz",
    title="an NPZ with labelled images",
    layout="`train_images`, `train_labels` (MedMNIST), `x_train`, `y_train` (Keras), `images`, `labels`, or others; "
    "`groups` (and `test_groups`) for people with several images; labels as integers, words or one-hot rows",
    suffixes=(".npz",),
    recognises=recognises,
    index=index,
)


def read_images_alone(source: Source) -> Images:
    """Read the images of an NPZ without labels: its one array of images, under any of the names above."""
    archive = _opened(source)
    names = {f"{name}{_SUFFIX}" for name in (*_IMAGES, *_TEST_IMAGES)}
    arrays = [entry for entry in archive.entries if entry.filename in names]
    if len(arrays) != 1:
        raise InvalidDataset("The NPZ must hold one array of images, named images or x.")
    check_image_header(*_header(archive, arrays[0]), prepared=False)
    return _read_images(source, archive, arrays[0], None)


def _array_entries(entries: Sequence[FileEntry]) -> list[FileEntry]:
    return [one for one in entries if one.filename.endswith(_SUFFIX) and not is_ignored(one.filename)]


def _opened(source: Source) -> Archive:
    if source.archive is None:
        raise InvalidDataset(_DAMAGED)
    return source.archive


def _choose_splits(arrays: Mapping[str, FileEntry]) -> dict[str, _Split]:
    """Choose the arrays of the training and, if there is one, the test split, by the names of labels in a refusal."""
    images, labels = _only(arrays, _IMAGES), _only(arrays, _LABELS)
    if images is None or labels is None:
        raise InvalidDataset(
            f"The file holds {_listed(arrays)}. It must name its arrays in one of the known ways: images and labels, x "
            "and y, data and targets, train_images and train_labels, or x_train and y_train (with test_images and "
            "test_labels, or x_test and y_test, if there is a test split)."
        )
    test_images, test_labels = _only(arrays, _TEST_IMAGES), _only(arrays, _TEST_LABELS)
    splits = {"the training labels": _Split(arrays[images], arrays[labels])}
    if test_images is not None and test_labels is not None:
        return {**splits, "the test labels": _Split(arrays[test_images], arrays[test_labels])}
    if test_images is not None or test_labels is not None:
        raise InvalidDataset("A test split needs both test_images and test_labels (or x_test and y_test).")
    return splits


def _only(arrays: Mapping[str, FileEntry], names: tuple[str, ...]) -> str | None:
    found = [name for name in names if name in arrays]
    if len(found) > 1:
        raise InvalidDataset(f"The file holds {_listed(found)}, which mean the same: it must name arrays in one way.")
    return found[0] if found else None


def _listed(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:8]) + (", …" if len(shown) > 8 else "") or "no arrays"


def _check_headers(archive: Archive, split: _Split, choices: ReadingChoices) -> None:
    images, labels = _header(archive, split.images), _header(archive, split.labels)
    check_image_header(*images, prepared=choices.preparation is not None)
    check_label_header(*labels)
    if images.shape[0] != labels.shape[0]:
        raise InvalidDataset(
            f"There must be exactly one label per image: there are {labels.shape[0]:,} labels for {images.shape[0]:,} "
            "images."
        )


def _column(archive: Archive, split: _Split, names: ClassNames | None) -> LabelColumn:
    column = column_of_array(_read_array(archive, split.labels))
    return column if names is None else column._replace(names=names)


def _reading(source: Source, archive: Archive, split: _Split, choices: ReadingChoices) -> ReadImages:
    def read(first: Images | None) -> DecodedImages:
        images = _read_images(source, archive, split.images, choices.settled_preparation(first))
        return DecodedImages(images, np.arange(len(images), dtype=np.int64))

    return read


def _note_ignored(
    source: Source, arrays: Mapping[str, FileEntry], splits: Mapping[str, _Split], groups: Sequence[str]
) -> None:
    used = {entry.filename for split in splits.values() for entry in split}
    known = (_CLASS_NAMES, PREPARATION, UNIT, *groups)
    others = [name for name, entry in arrays.items() if entry.filename not in used and name not in known]
    source.notices.add(NoticeCode.PERSON_COLUMN, (name for name in others if is_person_column(name)))
    source.notices.add(NoticeCode.IGNORED_ARRAYS, (name for name in others if not is_person_column(name)))
    read = {entry.filename for entry in arrays.values()}
    files = [entry.filename for entry in source.entries if entry.filename not in read]
    source.notices.add(NoticeCode.IGNORED_FILES, files)


def _header(archive: Archive, entry: FileEntry) -> _Header:
    """Read shape and type of an array, without its numbers.

    Only format version 1.0 is read: later versions exist for structured types and for headers of up to 4 GiB.
    """
    with refusing(_DAMAGED), archive.open(entry) as stream:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError
        shape, _, dtype = npy.read_array_header_1_0(stream)
        start = stream.tell()
    if dtype.hasobject or dtype.names is not None:
        raise InvalidDataset("The NPZ holds Python objects. Save plain numeric arrays of equal-sized images.")
    declared = math.prod(shape) * dtype.itemsize
    # An empty array may still declare lengths that take forever to walk through.
    if declared == 0:
        raise InvalidDataset("An array in the NPZ is empty. Save at least two labelled images.")
    if start + declared != entry.file_size or min(shape, default=0) < 0:
        raise InvalidDataset(_DAMAGED)
    return _Header(shape, dtype)


def _read_array(archive: Archive, entry: FileEntry) -> NDArray[Any]:
    with refusing(_DAMAGED), archive.open(entry) as stream:
        return npy.read_array(stream, allow_pickle=False)


def _read_images(source: Source, archive: Archive, entry: FileEntry, preparation: PrepareSettings | None) -> Images:
    return convert_pixels(
        _read_array(archive, entry), entry.filename.removesuffix(_SUFFIX), preparation, source.notices
    )


def _group_arrays(arrays: Mapping[str, FileEntry], choices: ReadingChoices, split: str) -> list[str]:
    """List the arrays of groups of a split: the declared one, else all with a usual name, in any case.

    The name of the split may precede it; for test images it must.
    """
    fronts = {"train": ("", "train_"), "test": ("test_",)}[split]
    if choices.group_column is not None:
        bare = choices.group_column.removeprefix("train_")
        named = {"train": (choices.group_column,), "test": (f"test_{bare}",)}[split]
        return [name for name in arrays if name in named]
    usual = {f"{front}{name}" for front in fronts for name in (*_GROUPS, UNIT_IDS, GROUP_IDS)}
    return [name for name in arrays if name.casefold() in usual]


def _read_groups(
    archive: Archive, arrays: Mapping[str, FileEntry], present: Sequence[str], called: str, count: int
) -> Groups:
    """Read groups of a split by their names, or by identities as `datalens prepare` writes them."""
    if not present:
        return Groups()
    bare = {re.sub("^(train|test)_", "", name, flags=re.IGNORECASE): name for name in present}
    if len(bare) != len(present) or (len(bare) > 1 and not bare.keys() <= {UNIT_IDS, GROUP_IDS}):
        raise InvalidDataset(f"The NPZ must name its groups in one way, not in {_listed(present)}.")
    split = called.removeprefix("the ").removesuffix(" labels")
    found = {name: _read_group_array(archive, arrays, key, split, count) for name, key in bare.items()}
    if found.keys() <= {UNIT_IDS, GROUP_IDS}:
        return _from_identities(archive, arrays, found)
    ((name, values),) = found.items()
    return Groups.from_names(map(str, values.tolist()), group_word(name))


def _read_group_array(
    archive: Archive, arrays: Mapping[str, FileEntry], key: str, split: str, count: int
) -> NDArray[Any]:
    header = _header(archive, arrays[key])
    if header.dtype.kind not in "uiU" or len(header.shape) != 1:
        raise InvalidDataset(f"{key} must be a one-dimensional array of integers or strings, one per {split} image.")
    if header.shape[0] != count:
        raise InvalidDataset(f"There must be exactly one group per {split} image: {key} has {header.shape[0]:,}.")
    return _read_array(archive, arrays[key])


def _from_identities(archive: Archive, arrays: Mapping[str, FileEntry], found: Mapping[str, NDArray[Any]]) -> Groups:
    for name, lowest in ((UNIT_IDS, 0), (GROUP_IDS, NOBODY)):
        values = found.get(name)
        if values is not None and (values.dtype != np.int64 or values.min() < lowest):
            raise InvalidDataset(f"{name} must be what `datalens prepare` writes. Name the groups in an array groups.")
    word = group_word(_read_text(archive, arrays[UNIT])) if UNIT in arrays else "group"
    first = next(iter(found.values()))
    return Groups(word=word, unit_ids=found.get(UNIT_IDS, first), group_ids=found.get(GROUP_IDS, first))


def _read_text(archive: Archive, entry: FileEntry) -> str:
    header = _header(archive, entry)
    if header.dtype.kind != "U" or header.shape != () or header.dtype.itemsize > 4 * _PREPARATION_CHARACTERS:
        raise InvalidDataset(_NOT_PREPARED)
    return str(_read_array(archive, entry))


def _read_preparation(archive: Archive, arrays: Mapping[str, FileEntry]) -> PrepareSettings | None:
    if PREPARATION not in arrays:
        return None
    try:
        return PrepareSettings.model_validate_json(_read_text(archive, arrays[PREPARATION]))
    except ValidationError:
        raise InvalidDataset(_NOT_PREPARED) from None


def _names_in_file(archive: Archive, arrays: Mapping[str, FileEntry]) -> ClassNames | None:
    if _CLASS_NAMES not in arrays:
        return None
    header = _header(archive, arrays[_CLASS_NAMES])
    if header.dtype.kind != "U" or len(header.shape) != 1:
        raise InvalidDataset("The array of class names must be one-dimensional, of strings.")
    return tuple(str(name) for name in _read_array(archive, arrays[_CLASS_NAMES]))
