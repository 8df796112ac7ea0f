"""NPZ: arrays of images and labels, in the keys of MedMNIST, Keras, or plain `images`/`labels`.

Accepted keys (exactly one row):

    train_images, train_labels [, test_images, test_labels]
    x_train,      y_train      [, x_test,      y_test]
    images,       labels       [, test_images, test_labels]
    x,            y            [, x_test,      y_test]

An array `groups` (or `train_groups`) of integers or strings says which training images belong to one privacy unit,
for example to one person. An array `class_names` of strings is read if it is there, and so is `preparation`, in which
`datalens prepare` says what it did. Everything else is ignored and noted, `val_*` too: a validation split would change
the public number of records if it silently joined the training records. Whoever wants it protected and used appends it
to the training arrays.

Images are (n, height, width), (n, height, width, 1) or (n, height, width, 3): integers in 0..255, or floats in
[0, 1]. Channels may also stand before height and width. Labels are integers or words, (n,) or (n, 1), or one-hot
rows, (n, classes).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from pydantic import ValidationError

from datalens_service.data.dataset import Images, Split, UnitIds
from datalens_service.data.notices import NoticeCode
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.data.privacy_units import UnitDeclaration, identities
from datalens_service.data.readers import array_labels
from datalens_service.data.readers.base import ClassNames, Reader, Upload, build_upload, with_preparation
from datalens_service.data.untrusted.entries import Archive, Entry, refusing
from datalens_service.data.untrusted.source import Source
from datalens_service.errors import InvalidDataset

_SUFFIX = ".npy"
_CLASS_NAMES = "class_names"
PREPARATION: Final = "preparation"
"""Settings with which `datalens prepare` made the file, as JSON."""
_PREPARATION_CHARACTERS = 1000
_GROUPS = ("groups", "train_groups")
_ROWS_AT_ONCE = 4096
_NOT_PREPARED = "The array preparation is not what datalens prepare writes. Rename it, or leave it out."
_DAMAGED = "An array in the NPZ is damaged or not in NumPy's format. Save it again with numpy.savez_compressed."


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class _Keys(NamedTuple):
    images: str
    labels: str
    test_images: str
    test_labels: str


_LAYOUTS = (
    _Keys("train_images", "train_labels", "test_images", "test_labels"),
    _Keys("x_train", "y_train", "x_test", "y_test"),
    _Keys("images", "labels", "test_images", "test_labels"),
    _Keys("x", "y", "x_test", "y_test"),
)


def recognises(source: Source) -> bool:
    """Whether the file is a zip with a NumPy array in it."""
    arrays = [entry for entry in source.entries if entry.filename.endswith(_SUFFIX)]
    return not source.is_tar and bool(arrays) and source.head(arrays[0], len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX


def read(source: Source, *, class_names: ClassNames | None, units: UnitDeclaration | None) -> Upload:
    """Read an NPZ.

    Args:
        source: The opened file.
        class_names: Public names; by default those in the file, else "0", "1", ... up to the largest label.
        units: What one unit is, if the file has an array of groups.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    archive = source.archive
    if archive is None:
        raise InvalidDataset(_DAMAGED)
    arrays = {e.filename.removesuffix(_SUFFIX): e for e in archive.entries if e.filename.endswith(_SUFFIX)}
    pairs = _choose_pairs(arrays)
    # All headers first: nothing is unpacked for an upload that is refused anyway.
    for images, labels in pairs:
        _check_image_header(_header(archive, images))
        array_labels.check_header(*_header(archive, labels))
    pixels = [_read_images(source, archive, images) for images, _ in pairs]
    in_file = class_names or _names_in_file(archive, arrays)
    numbers, names = array_labels.read([_read_array(archive, entry) for _, entry in pairs], in_file, source.notices)
    train, *tests = [Split(*split) for split in zip(pixels, numbers, strict=True)]
    train = replace(train, units=_read_groups(archive, arrays))
    test = tests[0] if tests else None
    used = {entry.filename for pair in pairs for entry in pair}
    others = [name for name, entry in arrays.items() if entry.filename not in used]
    known = (_CLASS_NAMES, PREPARATION, *_GROUPS)
    source.notices.add(NoticeCode.IGNORED_ARRAYS, (name for name in others if name not in known))
    return with_preparation(build_upload(train, test, names, units), _read_preparation(archive, arrays))


READER = Reader(
    name="npz",
    title="an NPZ with labelled images",
    layout="`train_images`, `train_labels` (MedMNIST), `x_train`, `y_train` (Keras) or `images`, `labels`; "
    "`groups` for people with several images; labels as integers, words or one-hot rows",
    suffixes=(".npz",),
    recognises=recognises,
    read=read,
    prepares=False,
)


def read_images_alone(source: Source) -> Images:
    """Images of an NPZ without labels: its one array of images, under any of the names above.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    archive = source.archive
    if archive is None:
        raise InvalidDataset(_DAMAGED)
    names = {f"{name}{_SUFFIX}" for keys in _LAYOUTS for name in (keys.images, keys.test_images)}
    arrays = [entry for entry in archive.entries if entry.filename in names]
    if len(arrays) != 1:
        raise InvalidDataset("The NPZ must hold one array of images, named images or x.")
    _check_image_header(_header(archive, arrays[0]))
    return _read_images(source, archive, arrays[0])


def _choose_pairs(arrays: Mapping[str, Entry]) -> list[tuple[Entry, Entry]]:
    """(images, labels) of training and, if there is one, of the test split."""
    layouts = [keys for keys in _LAYOUTS if keys.images in arrays and keys.labels in arrays]
    if len(layouts) != 1:
        raise InvalidDataset(
            "The NPZ must name its arrays in one way: train_images and train_labels, or images and labels "
            "(with test_images and test_labels if there is a test split)."
        )
    (keys,) = layouts
    has_test = [key in arrays for key in (keys.test_images, keys.test_labels)]
    if any(has_test) and not all(has_test):
        raise InvalidDataset(f"A test split needs both {keys.test_images} and {keys.test_labels}.")
    pairs = [(arrays[keys.images], arrays[keys.labels])]
    return [*pairs, (arrays[keys.test_images], arrays[keys.test_labels])] if all(has_test) else pairs


def _header(archive: Archive, entry: Entry) -> _Header:
    """Shape and type of an array, without its numbers.

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
    if start + declared != entry.file_size:
        raise InvalidDataset(_DAMAGED)
    return _Header(shape, dtype)


def _check_image_header(header: _Header) -> None:
    shape = header.shape
    if len(shape) not in (3, 4) or (len(shape) == 4 and not {1, 3} & {shape[1], shape[3]}):
        raise InvalidDataset(
            "Images must have the shape (n, height, width), (n, height, width, 1 or 3) or (n, 1 or 3, height, width)."
        )
    if header.dtype.kind not in "uif":
        raise InvalidDataset("Images must be integers in 0..255 or floats in [0, 1].")


def _read_array(archive: Archive, entry: Entry) -> NDArray[Any]:
    with refusing(_DAMAGED), archive.open(entry) as stream:
        return npy.read_array(stream, allow_pickle=False)


def _read_images(source: Source, archive: Archive, entry: Entry) -> Images:
    """uint8 (n, height, width, channels), converted in blocks."""
    values = _read_array(archive, entry)
    if values.ndim == 3:
        values = values[..., np.newaxis]
    if values.shape[3] not in (1, 3):
        source.notices.add(NoticeCode.CHANNELS_FIRST, [entry.filename.removesuffix(_SUFFIX)])
        values = values.transpose(0, 2, 3, 1)
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    images = np.empty(values.shape, dtype=np.uint8)
    for start in range(0, len(values), _ROWS_AT_ONCE):
        images[start : start + _ROWS_AT_ONCE] = _as_bytes(values[start : start + _ROWS_AT_ONCE])
    return images


def _as_bytes(values: NDArray[Any]) -> Images:
    is_float = values.dtype.kind == "f"
    # Written so that NaN fails, too.
    if values.size and not (values.min() >= 0 and values.max() <= (1 if is_float else 255)):
        raise InvalidDataset(
            "Images must be integers in 0..255 or finite floats in [0, 1]. Convert them to uint8 and save again."
        )
    return np.rint(values * values.dtype.type(255)).astype(np.uint8) if is_float else values.astype(np.uint8)


def _read_groups(archive: Archive, arrays: Mapping[str, Entry]) -> UnitIds | None:
    """Identity of the unit of every training image, if the file names them."""
    groups = [arrays[key] for key in _GROUPS if key in arrays]
    if len(groups) > 1:
        raise InvalidDataset("The NPZ must name its groups in one way: groups or train_groups.")
    if not groups:
        return None
    header = _header(archive, groups[0])
    if header.dtype.kind not in "uiU" or len(header.shape) != 1:
        raise InvalidDataset("groups must be a one-dimensional array of integers or strings, one per training image.")
    return identities(_read_array(archive, groups[0]).tolist())


def _read_preparation(archive: Archive, arrays: Mapping[str, Entry]) -> PrepareSettings | None:
    if PREPARATION not in arrays:
        return None
    header = _header(archive, arrays[PREPARATION])
    if header.dtype.kind != "U" or header.shape != () or header.dtype.itemsize > 4 * _PREPARATION_CHARACTERS:
        raise InvalidDataset(_NOT_PREPARED)
    try:
        return PrepareSettings.model_validate_json(str(_read_array(archive, arrays[PREPARATION])))
    except ValidationError:
        raise InvalidDataset(_NOT_PREPARED) from None


def _names_in_file(archive: Archive, arrays: Mapping[str, Entry]) -> ClassNames | None:
    if _CLASS_NAMES not in arrays:
        return None
    header = _header(archive, arrays[_CLASS_NAMES])
    if header.dtype.kind != "U" or len(header.shape) != 1:
        raise InvalidDataset("class_names must be a one-dimensional array of strings.")
    return tuple(str(name) for name in _read_array(archive, arrays[_CLASS_NAMES]))
