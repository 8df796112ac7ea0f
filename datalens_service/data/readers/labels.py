"""Labels that come as text: integers number the classes, words name them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from datalens_service.data.dataset import MAXIMUM_CLASSES, Labels
from datalens_service.data.notices import NoticeCode, Notices
from datalens_service.data.readers.base import ClassNames
from datalens_service.errors import InvalidDataset

_NUMBER = re.compile(r"-?\d+")
_MOST_DIGITS = len(str(MAXIMUM_CLASSES))


def numbered(labels: Sequence[str], class_names: ClassNames | None, notices: Notices) -> tuple[Labels, ClassNames]:
    """Labels as indices into class names.

    Args:
        labels: One per record, of all splits together.
        class_names: Public names; by default the words in sorted order, or "0", "1", ... up to the largest number.
        notices: Collects words that got other names, or other numbers than they say.

    Returns:
        int64 (n,), and the names.

    Raises:
        InvalidDataset: A word is not among the names, or a number is too large.
    """
    words = sorted(set(labels))
    if class_names is not None and all(word in class_names for word in words):
        position = {name: index for index, name in enumerate(class_names)}
        return np.array([position[label] for label in labels], dtype=np.int64), class_names
    if all(_NUMBER.fullmatch(word) for word in words):
        # Python takes very long for very many digits.
        numbers = np.array([int(label) if len(label) <= _MOST_DIGITS else -1 for label in labels], dtype=np.int64)
        return numbers, class_names or number_names(numbers)
    return _by_sorted_word(labels, words, class_names, notices)


def note_names(words: Sequence[str], label_of: Mapping[str, int], class_names: ClassNames, notices: Notices) -> None:
    """Note words of the upload that got another name, or, being numbers, another number as their label.

    Args:
        words: Folders or labels of the upload, in sorted order.
        label_of: Label of each.
        class_names: Public names by label.
        notices: Collects them.
    """
    named = {word: class_names[label_of[word]] for word in words}
    renamed = [f"{word} is named {name}" for word, name in named.items() if word != name]
    notices.add(NoticeCode.CLASSES_RENAMED, renamed)
    if not renamed and words and all(_NUMBER.fullmatch(word) for word in words):
        # Compared as text: Python takes very long for very many digits.
        moved = [word for word in words if (word.lstrip("0") or "0") != str(label_of[word])]
        notices.add(NoticeCode.LABELS_RENUMBERED, (f"{word} is label {label_of[word]}" for word in moved))


def number_names(labels: Labels) -> ClassNames:
    """ "0", "1", ... up to the largest label, which the owner thereby declares public.

    Raises:
        InvalidDataset: A label is negative or too large.
    """
    if labels.size and not (labels.min() >= 0 and labels.max() < MAXIMUM_CLASSES):
        raise InvalidDataset(f"Labels must number the classes from 0 and lie below {MAXIMUM_CLASSES}.")
    return tuple(str(index) for index in range(int(labels.max(initial=0)) + 1))


def _by_sorted_word(
    labels: Sequence[str], words: Sequence[str], class_names: ClassNames | None, notices: Notices
) -> tuple[Labels, ClassNames]:
    if len(words) > MAXIMUM_CLASSES:
        raise InvalidDataset(f"There may be at most {MAXIMUM_CLASSES} classes.")
    if class_names is not None and (len(class_names) < len(words) or set(words) & set(class_names)):
        raise InvalidDataset("class_names must name every label, or rename all of them in sorted order.")
    position = {word: index for index, word in enumerate(words)}
    names = class_names or tuple(words)
    note_names(words, position, names, notices)
    return np.array([position[label] for label in labels], dtype=np.int64), names
