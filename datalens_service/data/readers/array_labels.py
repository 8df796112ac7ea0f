"""Labels that come as arrays: integers, words, or one-hot rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import MAXIMUM_CLASSES, Labels
from datalens_service.data.notices import Notices
from datalens_service.data.readers.base import ClassNames
from datalens_service.data.readers.labels import number_names, numbered
from datalens_service.errors import InvalidDataset

_BELOW: Final = f"Labels must number the classes from 0 and lie below {MAXIMUM_CLASSES}."
_ONE_HOT: Final = "One-hot labels must have one 1 in each row, and 0 everywhere else."


def check_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse an array that cannot be labels, before it is read.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] > MAXIMUM_CLASSES):
        raise InvalidDataset("Labels must have the shape (n,) or (n, 1), or be one-hot rows (n, classes).")
    if dtype.kind not in ("uifb" if _is_one_hot(shape) else "uiU"):
        raise InvalidDataset("Labels must be integers that number the classes from 0, words, or one-hot rows.")


def read(
    arrays: Sequence[NDArray[Any]], class_names: ClassNames | None, notices: Notices
) -> tuple[list[Labels], ClassNames]:
    """Labels of every split as indices into class names.

    Args:
        arrays: Of the training split and, if there is one, of the test split; headers passed `check_header`.
        class_names: Public names; by default the words in sorted order, or "0", "1", ….
        notices: Collects words that got other names.

    Returns:
        int64 (n,) for each split, and the names.

    Raises:
        InvalidDataset: With a sentence that says what to change.
    """
    if len({(array.dtype.kind == "U", _is_one_hot(array.shape)) for array in arrays}) > 1:
        raise InvalidDataset("Labels of the training and the test split must be of one kind.")
    if arrays[0].dtype.kind == "U":
        return _from_words(arrays, class_names, notices)
    labels = [_from_one_hot(array) if _is_one_hot(array.shape) else _from_integers(array) for array in arrays]
    if class_names is None and _is_one_hot(arrays[0].shape):
        class_names = tuple(str(index) for index in range(arrays[0].shape[1]))
    return labels, class_names or number_names(np.concatenate(labels))


def _is_one_hot(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] > 1


def _from_words(
    arrays: Sequence[NDArray[Any]], class_names: ClassNames | None, notices: Notices
) -> tuple[list[Labels], ClassNames]:
    words = [str(word) for array in arrays for word in array.reshape(-1)]
    labels, names = numbered(words, class_names, notices)
    return np.split(labels, np.cumsum([len(array) for array in arrays])[:-1]), names


def _from_one_hot(values: NDArray[Any]) -> Labels:
    # Written so that NaN fails, too.
    if not (np.all((values == 0) | (values == 1)) and np.all(np.count_nonzero(values, axis=1) == 1)):
        raise InvalidDataset(_ONE_HOT)
    return np.asarray(values.argmax(axis=1), dtype=np.int64)


def _from_integers(array: NDArray[Any]) -> Labels:
    values = array.reshape(-1)
    if values.size and not (values.min() >= 0 and values.max() < MAXIMUM_CLASSES):
        raise InvalidDataset(_BELOW)
    return values.astype(np.int64)
