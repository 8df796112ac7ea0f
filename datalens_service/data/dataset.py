"""A labelled image set: a public schema and private records."""

import operator
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from datalens_service.base.audience import Private
from datalens_service.base.errors import InvalidDataset
from datalens_service.base.fields import Frozen
from datalens_service.data.image_sizes import MAXIMUM_SIDE
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.privacy.guarantee import PrivacyUnit

PRIVATE_READS = ("reading the upload",)

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
UnitIds = NDArray[np.int64]
GroupIds = NDArray[np.int64]

MAXIMUM_CLASSES = 1000
MINIMUM_KEY_BYTES: Final = 16
NOBODY: Final = -1
"""The group of a record whose owner is not stated."""


class Schema(Frozen):
    """Everything the owner declares public, and so everything a run may depend on without a charge.

    `num_units` is n, the public number of privacy units. By default one record is one unit; a unit of several
    records has a name of the owner's, and public bounds on its records and their classes (`privacy_units.py`).
    """

    channels: Annotated[int, Field(ge=1, le=4)]
    height: Annotated[int, Field(ge=4, le=MAXIMUM_SIDE)]
    width: Annotated[int, Field(ge=4, le=MAXIMUM_SIDE)]
    class_names: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAXIMUM_CLASSES)]
    num_units: Annotated[int, Field(ge=2)]
    unit: str = "record"
    records_per_unit: Annotated[int, Field(ge=1)] = 1
    classes_per_unit: Annotated[int, Field(ge=1)] = 1
    test_is_public: bool = False
    """True if the test split is public: figures measured on it may then be passed on."""
    records_are_public: bool = Field(default=False, exclude_if=operator.not_)
    """True if all records are public: methods may start from them; never changed after the upload."""
    public_license: str = Field(default="", exclude_if=operator.not_)
    """Words of the owner under which public records may be passed on."""
    groups_ignored: bool = Field(default=False, exclude_if=operator.not_)
    """True if every record is a unit although the upload said which records belong together."""
    preparation: PrepareSettings | None = Field(default=None, exclude_if=operator.not_)
    """The settings that brought every image to this size, if that was done before the upload or with it."""

    @property
    def dimensions(self) -> int:
        """Return the numbers per image."""
        return self.channels * self.height * self.width

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def privacy_unit(self) -> PrivacyUnit:
        """Return the unit that is protected as a whole, with its word for readers."""
        return PrivacyUnit(self.unit, self.records_per_unit)


@dataclass(frozen=True)
class Split:
    """Private images with their labels.

    Attributes:
        images: uint8 (n, height, width, channels).
        labels: int64 (n,), in [0, num_classes).
        units: int64 (n,), identity of each record's unit (`privacy_units.py`); None: every record is its own.
        groups: int64 (n,), the person (or account, …) of each record by the upload, also where single
            records are the units; `NOBODY` where it is not stated. The same number in two splits is the same person.
            None: it is stated of no record, or the split was stored by a version that did not keep it.
    """

    images: Images
    labels: Labels
    units: UnitIds | None = None
    groups: GroupIds | None = None

    @property
    def unit_ids(self) -> UnitIds:
        """Return the identity of each record's unit, int64 (n,); by default its position."""
        return np.arange(len(self.labels), dtype=np.int64) if self.units is None else self.units

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Return the split of these rows, in this order.

        A record without a declared unit is identified by its new position.
        """
        units, groups = (None if ids is None else ids[rows] for ids in (self.units, self.groups))
        return replace(self, images=self.images[rows], labels=self.labels[rows], units=units, groups=groups)

    def is_of_persons_in(self, other: Self) -> NDArray[np.bool_]:
        """Tell of each record, (n,), whether it is of a person who has records in the other split, too."""
        if self.groups is None or other.groups is None:
            return np.zeros(len(self.labels), dtype=bool)
        shared: NDArray[np.bool_] = (self.groups != NOBODY) & np.isin(self.groups, other.groups)
        return shared

    @property
    def count(self) -> Private[int]:
        """Return the number of records; where units have several, nobody but the owner may know it."""
        return Private(len(self.labels))

    def __repr__(self) -> str:
        return "Split(private images)"


class Upload(NamedTuple):
    """Schema (public) and records (private), as they are read: nobody can train on them without a `Dataset`'s key.

    Attributes:
        schema: Everything the owner declares public.
        train: The records the guarantee protects.
        test: The owner's own hold-out for measuring utility, or None. Numbers computed on it are for the
            owner only, and leave out persons who have training records.
    """

    schema: Schema
    train: Split
    test: Split | None


@dataclass(frozen=True)
class Dataset:
    """An upload with the secret key that assigns its records to shards.

    Attributes:
        partition_key: Secret, at least 16 bytes.

    Raises:
        InvalidDataset: The key is too short, or the records do not fit the schema.
    """

    schema: Schema
    train: Split
    test: Split | None
    partition_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_partition_key(self.partition_key)
        check_upload(Upload(self.schema, self.train, self.test))


def check_partition_key(key: bytes) -> None:
    """Refuse a key that can be guessed: with it, anybody knows which shard a record went to."""
    if len(key) < MINIMUM_KEY_BYTES:
        raise InvalidDataset(f"The partition key must be {MINIMUM_KEY_BYTES} secret bytes or more.")


def check_upload(upload: Upload) -> None:
    """Refuse records that do not fit their schema."""
    for split in (upload.train, upload.test):
        if split is not None:
            check_split(upload.schema, split)
    check_units(upload.schema, upload.train)


def check_split(schema: Schema, split: Split) -> None:
    """Refuse a split that does not fit its schema.

    Raises:
        InvalidDataset: Shape, type, length or label range differ from the declaration.
    """
    expected = (schema.height, schema.width, schema.channels)
    if split.images.dtype != np.uint8 or split.images.ndim != 4 or split.images.shape[1:] != expected:
        raise InvalidDataset(f"Images must be uint8 of shape (n, {', '.join(map(str, expected))}).")
    if split.labels.ndim != 1 or len(split.labels) != len(split.images):
        raise InvalidDataset("There must be exactly one label per image.")
    if len(split.labels) == 0:
        raise InvalidDataset("A split must not be empty.")
    if split.groups is not None and (split.groups.dtype != np.int64 or split.groups.shape != split.labels.shape):
        raise InvalidDataset("There must be exactly one group per image, each an integer of 64 bits.")
    if split.labels.min() < 0 or split.labels.max() >= schema.num_classes:
        raise InvalidDataset(
            f"Labels must lie in 0..{schema.num_classes - 1} for {schema.num_classes} declared classes."
        )


def check_units(schema: Schema, split: Split) -> None:
    """Refuse training records whose units are not what the schema declares.

    Raises:
        InvalidDataset: Another number of units, or a unit with too many records or classes.
    """
    if len(split.unit_ids) != len(split.labels):
        raise InvalidDataset("There must be exactly one unit per training image.")
    _, numbers, counts = np.unique(split.unit_ids, return_inverse=True, return_counts=True)
    if len(counts) != schema.num_units:
        raise InvalidDataset("The declared number of units must be that of the training images.")
    if counts.max() > schema.records_per_unit:
        raise InvalidDataset(
            f"A {schema.unit} has more than the declared {schema.records_per_unit} training images. "
            "Declare a larger number, which costs accuracy, or leave images out."
        )
    if _classes_reached(numbers, split.labels, schema.num_classes).max() > schema.classes_per_unit:
        raise InvalidDataset(
            f"A {schema.unit} has images of more than the declared number of classes ({schema.classes_per_unit}). "
            "Declare a larger number, or leave images out."
        )


def _classes_reached(numbers: NDArray[np.intp], labels: NDArray[np.int64], num_classes: int) -> NDArray[np.int64]:
    """Count the classes that every unit has records of."""
    pairs = np.unique(numbers.astype(np.int64) * num_classes + labels)
    return np.bincount(pairs // num_classes)
