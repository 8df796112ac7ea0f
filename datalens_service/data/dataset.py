"""A labelled image set: a public schema and private records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.errors import InvalidDataset

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]

MAXIMUM_SIDE = 256
MAXIMUM_CLASSES = 1000


class Schema(BaseModel):
    """What the owner declares public: everything a run may depend on without a charge.

    `num_units` is n, the public number of privacy units (default: one record is one unit).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    channels: Annotated[int, Field(ge=1, le=4)]
    height: Annotated[int, Field(ge=4, le=MAXIMUM_SIDE)]
    width: Annotated[int, Field(ge=4, le=MAXIMUM_SIDE)]
    class_names: Annotated[tuple[str, ...], Field(min_length=1, max_length=MAXIMUM_CLASSES)]
    num_units: Annotated[int, Field(ge=2)]
    unit: str = "record"

    @property
    def dimensions(self) -> int:
        """Numbers per image."""
        return self.channels * self.height * self.width

    @property
    def num_classes(self) -> int:
        """Number of declared classes."""
        return len(self.class_names)


@dataclass(frozen=True)
class Split:
    """Private images with their labels.

    Attributes:
        images: uint8 (n, height, width, channels).
        labels: int64 (n,), in [0, num_classes).
    """

    images: Images
    labels: Labels

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Split({len(self)} private images)"


@dataclass(frozen=True)
class Dataset:
    """Schema (public) and records (private).

    Attributes:
        schema: What the owner declares public.
        train: The records the guarantee protects.
        test: The owner's own hold-out for measuring utility, or None. Numbers computed on it are for the
            owner only.
        partition_key: Secret key of the assignment of records to shards.
    """

    schema: Schema
    train: Split
    test: Split | None
    partition_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        for split in (self.train, self.test):
            if split is not None:
                check_split(self.schema, split)
        if len(self.train) != self.schema.num_units:
            raise InvalidDataset("num_units must be the number of training images.")


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
    if split.labels.min() < 0 or split.labels.max() >= schema.num_classes:
        raise InvalidDataset(
            f"Labels must lie in 0..{schema.num_classes - 1} for {schema.num_classes} declared classes."
        )
