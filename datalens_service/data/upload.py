"""What every reader hands out, and the checks all readers share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from datalens_service.data.dataset import MAXIMUM_CLASSES, MAXIMUM_SIDE, Schema, Split, check_split
from datalens_service.data.limits import Limits
from datalens_service.errors import InvalidDataset

ClassNames = tuple[str, ...]

_CLASS_NAME_LENGTH = 100


class Upload(NamedTuple):
    """A checked upload: everything of a `Dataset` but its secret key."""

    schema: Schema
    train: Split
    test: Split | None


class Recognise(Protocol):
    """Says whether a file looks like one format."""

    def __call__(self, path: Path, limits: Limits) -> bool:
        """True if contents, not the name, look like the format."""


class Read(Protocol):
    """Reads one format."""

    def __call__(self, path: Path, *, class_names: ClassNames | None, limits: Limits) -> Upload:
        """The checked contents.

        Raises:
            InvalidDataset: With a sentence that says what to change.
        """


@dataclass(frozen=True)
class Reader:
    """One upload format.

    Attributes:
        recognises: Whether a file is of this format.
        read: Its reader.
    """

    recognises: Recognise
    read: Read


def build_upload(train: Split, test: Split | None, class_names: ClassNames) -> Upload:
    """Put checked parts together.

    Args:
        train: Images uint8 (n, height, width, channels) and labels int64 (n,).
        test: The same, or None.
        class_names: Public names; every label is an index into them.

    Raises:
        InvalidDataset: Sizes, labels or names are outside what the product accepts.
    """
    check_class_names(class_names)
    _, height, width, channels = train.images.shape
    try:
        schema = Schema(channels=channels, height=height, width=width, class_names=class_names, num_units=len(train))
    except ValidationError:
        raise InvalidDataset(
            f"Images must measure 4 to {MAXIMUM_SIDE} pixels on each side, and there must be 1 to {MAXIMUM_CLASSES} "
            "classes and at least two training images. Resize the images or join classes."
        ) from None
    for split in (train, test):
        if split is not None:
            check_split(schema, split)
    return Upload(schema, train, test)


def check_class_names(class_names: ClassNames) -> None:
    """Refuse names that cannot be shown or told apart.

    Raises:
        InvalidDataset: A name is empty, repeated, longer than 100 characters or not printable.
    """
    if len(set(class_names)) != len(class_names):
        raise InvalidDataset("Class names must differ from each other.")
    for name in class_names:
        if not (0 < len(name) <= _CLASS_NAME_LENGTH and name.isprintable() and name.strip()):
            raise InvalidDataset(f"Class names must be 1 to {_CLASS_NAME_LENGTH} printable characters.")
