"""Labels of every kind become indices into class names: integers, words, flags, one-hot rows.

A column of labels is a list of words and their kind. Numbers that occur are the classes: 3, 77 and 999 are three
classes of these names, in ascending order. Words are classes in sorted order. Names that a file or its owner declares
take their places. Spaces around words do not count, nor does the form of Unicode in which they are written.

A missing label is an empty word; a negative number means a missing label, too.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.dataset import MAXIMUM_CLASSES, Labels
from datalens_service.data.intake.readers.base import ClassNames, LabelColumn, LabelKind
from datalens_service.data.intake.untrusted.entries import normal
from datalens_service.data.notices import NoticeCode, Notices

_LARGEST: Final = 10**15
_DIGITS: Final = re.compile(r"\d{1,15}")
_WHOLE: Final = re.compile(rf"{_DIGITS.pattern}(\.0+)?")
_NEGATIVE: Final = re.compile(rf"-{_WHOLE.pattern}")
_MISSING: Final = ""
_ONE_HOT: Final = "One-hot labels must have one 1 in each row, and 0 everywhere else."
_SEVERAL: Final = (
    "At least one image has several labels. Give each image one label: images of several classes are not trained on."
)


def column_of_values(values: Sequence[object]) -> LabelColumn:
    """Make a column of values in tables and JSON: integers, words, flags or whole floats.

    Raises:
        InvalidDataset: A value is no label, or the column mixes kinds.
    """
    kinds, words = set[LabelKind](), []
    for value in values:
        kind, word = _read_value(value)
        kinds |= {kind} if word else set()
        words.append(word)
    if len(kinds) > 1:
        raise InvalidDataset(f"Labels must be of one kind; these mix {' and '.join(sorted(kinds))}.")
    return LabelColumn(kinds.pop() if kinds else LabelKind.TEXT, tuple(words))


def column_of_texts(texts: Sequence[str]) -> LabelColumn:
    """Make a column of text: whole numbers, in digits or as `1.0`, if the texts of all splits are; else words."""
    return LabelColumn(LabelKind.TEXT, tuple(texts))


def check_label_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse an array that cannot be labels, before it is read."""
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] > MAXIMUM_CLASSES):
        raise InvalidDataset("Labels must have the shape (n,) or (n, 1), or be one-hot rows (n, classes).")
    if dtype.kind not in ("uifb" if _is_one_hot(shape) else "uifbUS"):
        raise InvalidDataset("Labels must be integers, words, true and false, or one-hot rows.")


def column_of_array(array: NDArray[Any]) -> LabelColumn:
    """Make a column of an array whose header passed `check_label_header`."""
    if _is_one_hot(array.shape):
        return _from_one_hot(array)
    values = array.reshape(-1)
    if values.dtype.kind in "US":
        return LabelColumn(LabelKind.WORD, tuple(_decoded(word) for word in values.tolist()))
    if values.dtype.kind == "b":
        return LabelColumn(LabelKind.FLAG, tuple(str(value).lower() for value in values.tolist()))
    return LabelColumn(LabelKind.NUMBER, _whole_numbers(values))


def has_no_labels(column: LabelColumn) -> bool:
    """Tell whether all labels of a split are missing or negative, as in test splits whose labels are kept back."""
    return all(not word.strip() or _NEGATIVE.fullmatch(word.strip()) for word in column.words)


def number_labels(
    columns: Mapping[str, LabelColumn], class_names: ClassNames | None, notices: Notices
) -> tuple[list[Labels], ClassNames]:
    """Turn the labels of all splits into indices (n,) into class names, and return these names.

    Args:
        columns: Columns by their names in a refusal.
        class_names: Names that the owner gives; None takes those of the file, or the labels themselves.

    Raises:
        InvalidDataset: A label is missing or not among the names, columns differ in kind or have no label in common,
            or there are too many classes.
    """
    check_all_labelled(columns)
    columns = _settled(_tidied(columns, notices))
    check_one_kind(columns)
    _check_shared(columns)
    first = next(iter(columns.values()))
    words = _sorted_words({word for column in columns.values() for word in column.words}, first.kind)
    own = next((column.names for column in columns.values() if column.names), None)
    own, class_names = _tidy_names(own), _tidy_names(class_names)
    if own is not None and first.kind is LabelKind.NUMBER and int(words[-1]) < len(own):
        names, position = _numbered(words, own, class_names or own)
    else:
        names, position = _placed(words, first.kind, class_names or own)
    names, position = _joined(names, position)
    if len(names) > MAXIMUM_CLASSES:
        raise InvalidDataset(
            f"There may be at most {MAXIMUM_CLASSES} classes, and these labels have {len(names):,} different values. "
            "Labels must name classes, not single images."
        )
    note_names(words, position, names, notices)
    notices.add(NoticeCode.SIMILAR_CLASSES, _similar(names))
    return [np.array([position[word] for word in column.words], dtype=np.int64) for column in columns.values()], names


def note_names(words: Sequence[str], label_of: Mapping[str, int], class_names: ClassNames, notices: Notices) -> None:
    """Note words of the upload that got another name, or, being numbers, another number as their label."""
    named = {word: class_names[label_of[word]] for word in words}
    renamed = [f"{word} is named {name}" for word, name in named.items() if word != name]
    numbers = bool(words) and all(map(_DIGITS.fullmatch, words))
    if not (numbers and all(label_of[word] == int(word) for word in words)):
        notices.add(NoticeCode.CLASSES_RENAMED, renamed)
    if numbers and not renamed:
        moved = [word for word in words if int(word) != label_of[word]]
        notices.add(NoticeCode.LABELS_RENUMBERED, (f"{word} is label {label_of[word]}" for word in moved))


def check_all_labelled(columns: Mapping[str, LabelColumn]) -> None:
    """Refuse missing and negative labels.

    Args:
        columns: Columns by their names in a refusal.

    Raises:
        InvalidDataset: Names the place of the first.
    """
    for called, column in columns.items():
        negative = column.kind is LabelKind.NUMBER
        missing = [
            place for place, word in enumerate(column.words) if not word.strip() or (negative and word.startswith("-"))
        ]
        if missing:
            what = "negative" if all(column.words[place].strip() for place in missing) else "missing (empty or NaN)"
            raise InvalidDataset(
                f"In {called}, {len(missing):,} of {len(column.words):,} labels are {what}; the first is that of image "
                f"{missing[0]}. Leave out images without a class, or give them one."
            )


def _check_shared(columns: Mapping[str, LabelColumn]) -> None:
    """Refuse a test split without any class of the training split: nothing could be measured on it."""
    (_, train), *others = columns.items()
    for called, column in others:
        if not {*train.words} & {*column.words}:
            raise InvalidDataset(
                f"No label of {called} occurs in the training split, so nothing can be measured on it. Write labels "
                "alike in both, or leave the test split out."
            )


def _tidied(columns: Mapping[str, LabelColumn], notices: Notices) -> dict[str, LabelColumn]:
    """Strip spaces around words, and compose their Unicode; words that become one are noted."""
    tidy = {word: normal(word).strip() for column in columns.values() for word in column.words}
    kept = set(tidy)
    joined = (f"“{word}” read as {name}" for word, name in sorted(tidy.items()) if word != name and name in kept)
    notices.add(NoticeCode.SIMILAR_CLASSES, joined)
    return {
        called: column._replace(words=tuple(tidy[word] for word in column.words)) for called, column in columns.items()
    }


def _tidy_names(names: ClassNames | None) -> ClassNames | None:
    """Tidy names as words are.

    Raises:
        InvalidDataset: Two are the same before that.
    """
    if names is None:
        return None
    if len(set(names)) != len(names):
        raise InvalidDataset("Class names must differ from each other.")
    return tuple(normal(name).strip() for name in names)


def _joined(names: ClassNames, position: Mapping[str, int]) -> tuple[ClassNames, dict[str, int]]:
    """Join names that differed only in spaces into one class."""
    different = tuple(dict.fromkeys(names))
    return different, {word: different.index(names[place]) for word, place in position.items()}


def _similar(names: ClassNames) -> list[str]:
    """List names that differ only in case, in spaces within, or in compatible letters such as full-width ones."""
    alike = dict[str, list[str]]()
    for name in names:
        alike.setdefault(" ".join(unicodedata.normalize("NFKC", name).casefold().split()), []).append(name)
    return [", ".join(group) for group in alike.values() if len(group) > 1]


def _sorted_words(words: set[str], kind: LabelKind) -> list[str]:
    if kind is not LabelKind.FLAG and all(map(_DIGITS.fullmatch, words)):
        return sorted(words, key=lambda word: (int(word), word))
    return sorted(words)


def _placed(words: list[str], kind: LabelKind, declared: ClassNames | None) -> tuple[ClassNames, dict[str, int]]:
    """Return names, and the label of every word: by name, by number, or in order."""
    if declared is None:
        return tuple(words), {word: place for place, word in enumerate(words)}
    if all(word in declared for word in words):
        return declared, {word: declared.index(word) for word in words}
    if kind is LabelKind.NUMBER and int(words[-1]) < len(declared):
        return declared, {word: int(word) for word in words}
    if len(declared) != len(words) or set(words) & set(declared):
        raise InvalidDataset(
            f"⟦class_names⟧ has {len(declared)} names, and the upload has {len(words)} classes: name every class as "
            "it is called in the upload, or rename all of them in their order."
        )
    return declared, {word: place for place, word in enumerate(words)}


def _numbered(words: list[str], own: ClassNames, declared: ClassNames) -> tuple[ClassNames, dict[str, int]]:
    """Return names and labels for numbers in a file that names its classes: they are places in these names."""
    names = {word: own[int(word)] for word in words}
    if all(name in declared for name in names.values()):
        return declared, {word: declared.index(name) for word, name in names.items()}
    if len(declared) == len(own) and not set(own) & set(declared):
        return declared, {word: int(word) for word in words}
    return _placed(words, LabelKind.NUMBER, declared)


def _settled(columns: Mapping[str, LabelColumn]) -> dict[str, LabelColumn]:
    """Turn columns of text into numbers if all texts of all splits are whole numbers; otherwise into words."""
    texts = [word for column in columns.values() if column.kind is LabelKind.TEXT for word in column.words]
    if not all(map(_WHOLE.fullmatch, texts)):
        return {name: _of_kind(column, LabelKind.WORD) for name, column in columns.items()}
    numbers = {name: column._replace(words=tuple(word.partition(".")[0] for word in column.words))
               if column.kind is LabelKind.TEXT else column for name, column in columns.items()}  # fmt: skip
    return {name: _of_kind(column, LabelKind.NUMBER) for name, column in numbers.items()}


def _of_kind(column: LabelColumn, kind: LabelKind) -> LabelColumn:
    return column._replace(kind=kind) if column.kind is LabelKind.TEXT else column


def check_one_kind(columns: Mapping[str, LabelColumn]) -> None:
    """Refuse columns that differ in kind.

    Args:
        columns: Columns by their names in a refusal.

    Raises:
        InvalidDataset: The kinds differ.
    """
    kinds = {column.kind: name for name, column in reversed(list(columns.items()))}
    if len(kinds) > 1:
        told = ", but ".join(f"those of {name} are {kind}" for kind, name in kinds.items())
        raise InvalidDataset(f"Labels must be of one kind everywhere: {told}.")


def _read_value(value: object) -> tuple[LabelKind, str]:
    if value is None or value != value:
        return LabelKind.TEXT, _MISSING
    if isinstance(value, bool):
        return LabelKind.FLAG, str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int):
        _check_size(value)
        return LabelKind.NUMBER, str(value)
    if isinstance(value, bytes | str):
        return LabelKind.WORD, _decoded(value)
    raise InvalidDataset("At least one row has a label that is neither a whole number nor a word.")


def _decoded(word: bytes | str) -> str:
    try:
        text = word.decode() if isinstance(word, bytes) else word
    except UnicodeDecodeError:
        raise InvalidDataset("At least one label is no text in UTF-8. Save labels as integers or as text.") from None
    return text


def _whole_numbers(values: NDArray[Any]) -> tuple[str, ...]:
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), dtype=bool)
    numbers = values[~missing]
    if values.dtype.kind == "f" and not (np.isfinite(numbers).all() and (numbers == np.rint(numbers)).all()):
        raise InvalidDataset("Labels must be whole numbers: at least one has a fraction or is infinite.")
    _check_size(numbers.max(initial=0))
    words = iter(str(int(number)) for number in numbers.tolist())
    return tuple(_MISSING if is_missing else next(words) for is_missing in missing.tolist())


def _check_size(highest: Any) -> None:
    if highest >= _LARGEST:
        raise InvalidDataset("At least one label is a number of more than 15 digits. Number the classes.")


def _is_one_hot(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] > 1


def _from_one_hot(values: NDArray[Any]) -> LabelColumn:
    # Written so that NaN fails, too.
    if not np.all((values == 0) | (values == 1)):
        raise InvalidDataset(_ONE_HOT)
    ones = np.count_nonzero(values, axis=1)
    if (ones > 1).any():
        raise InvalidDataset(_SEVERAL)
    if (ones < 1).any() and ones.any():
        raise InvalidDataset(_ONE_HOT)
    names = tuple(str(index) for index in range(values.shape[1]))
    words = map(str, values.argmax(axis=1).tolist()) if ones.any() else [_MISSING] * len(values)
    return LabelColumn(LabelKind.NUMBER, tuple(words), names)
