"""What every reader hands out, and the checks all readers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from pydantic import ValidationError

from datalens_service.data.dataset import MAXIMUM_CLASSES, Schema, Split, check_split, check_units
from datalens_service.data.image_sizes import MAXIMUM_SIDE
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.data.privacy_units import UnitDeclaration
from datalens_service.data.untrusted.source import Source
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

    def __call__(self, source: Source) -> bool:
        """True if contents, not the name, look like the format."""


class Read(Protocol):
    """Reads one format."""

    def __call__(self, source: Source, *, class_names: ClassNames | None, units: UnitDeclaration | None) -> Upload:
        """The checked contents.

        Raises:
            InvalidDataset: With a sentence that says what to change.
        """


@dataclass(frozen=True)
class Reader:
    """One upload format.

    Attributes:
        name: Key in `READERS`, and `format` of the upload in the REST API.
        title: A noun with its article and container; the sentence that refuses unknown files and the pages show it.
        layout: How a file of this format is built, in Markdown, for the table of the documentation.
        suffixes: What such files are usually called, with the dot; contents decide, a browser's file dialog asks.
        recognises: Whether a file is of this format.
        read: Its reader.
        prepares: Whether it holds encoded images, which can be prepared one by one.
    """

    name: str
    title: str
    layout: str
    suffixes: tuple[str, ...]
    recognises: Recognise
    read: Read
    prepares: bool = True


def build_upload(
    train: Split, test: Split | None, class_names: ClassNames, units: UnitDeclaration | None = None
) -> Upload:
    """Put checked parts together.

    Args:
        train: Images uint8 (n, height, width, channels) and labels int64 (n,).
        test: The same, or None.
        class_names: Public names; every label is an index into them.
        units: What one unit is; None if every record is one.

    Raises:
        InvalidDataset: Sizes, labels, names or units are outside what the product accepts, or were not declared.
    """
    check_class_names(class_names)
    _check_declared(train, units)
    schema = _schema(train, class_names, units)
    for split in (train, test):
        if split is not None:
            check_split(schema, split)
    check_units(schema, train)
    return Upload(schema, train, test)


def _check_declared(train: Split, units: UnitDeclaration | None) -> None:
    if units is None and train.units is not None:
        raise InvalidDataset(
            "The upload says which images belong together. Declare records_per_unit, the most training images of "
            "one group, or remove the column to protect single images."
        )
    if units is not None and train.units is None:
        raise InvalidDataset(
            "records_per_unit was declared, but the upload does not say which images belong together. Add an array "
            "'groups' to the NPZ, a metadata.csv with the columns file_name and group to the zip, or a column group "
            "to the table."
        )


def _schema(train: Split, class_names: ClassNames, units: UnitDeclaration | None) -> Schema:
    _, height, width, channels = train.images.shape
    declared = {}
    if units is not None:
        reached = units.classes_of(len(class_names))
        declared = {"unit": units.name, "records_per_unit": units.records, "classes_per_unit": reached}
    try:
        return Schema.model_validate(
            {
                "channels": channels, "height": height, "width": width, "class_names": class_names,
                "num_units": len(np.unique(train.unit_ids)), **declared,
            }
        )  # fmt: skip
    except ValidationError:
        raise InvalidDataset(
            f"Images must measure 4 to {MAXIMUM_SIDE} pixels on each side, and there must be 1 to {MAXIMUM_CLASSES} "
            "classes and at least two training images of different units. Resize the images or join classes."
        ) from None


def with_public_test(upload: Upload) -> Upload:
    """The upload with its test split declared public.

    Raises:
        InvalidDataset: There is none, or one of its images is a training image.
    """
    if upload.test is None:
        raise InvalidDataset("There is no test split that could be public: add test_images and test_labels.")
    private = {image.tobytes() for image in upload.train.images}
    if any(image.tobytes() in private for image in upload.test.images):
        raise InvalidDataset("A test split that is public must not hold training images: they would be public, too.")
    return upload._replace(schema=upload.schema.model_copy(update={"test_is_public": True}))


def with_preparation(upload: Upload, settings: PrepareSettings | None) -> Upload:
    """The same upload, whose schema says how its images were prepared, if they were.

    Raises:
        InvalidDataset: The images have another size than they were brought to.
    """
    if settings is None:
        return upload
    if (upload.schema.width, upload.schema.height) != settings.size:
        raise InvalidDataset("The array preparation names another size than the images have. Leave it out.")
    return upload._replace(schema=upload.schema.model_copy(update={"preparation": settings}))


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
