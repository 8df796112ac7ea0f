"""What an owner declares of a dataset: its name and classes, its privacy unit, its budget."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

from datalens_service.data.privacy_units import MAXIMUM_RECORDS_PER_UNIT, NAME_PATTERN, UnitDeclaration
from datalens_service.data.readers.base import check_class_names
from datalens_service.errors import InvalidDataset
from datalens_service.strict import Flag, Integer, Number

IDENTIFIER: Final = r"^[A-Za-z0-9_-]+$"
"""What ids consist of; anything else is refused before a database that takes no NUL sees it."""


class DatasetForm(BaseModel):
    """Fields of an upload beside the file."""

    model_config = ConfigDict(extra="forbid")

    epsilon: Number | None = Field(
        default=None,
        gt=0,
        le=100,
        description="ε of the data set's whole lifetime. Left out only for records that were uploaded before: "
        "they keep the budget they have.",
    )
    delta: Number | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="δ, below 1/n; left out, it is min(1e-5, n^-1.1). For records that were uploaded before it has to "
        "be the δ of the budget they have.",
    )
    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)] | None = Field(
        default=None, description="For people, printable; left out, it is the id."
    )
    classes: tuple[str, ...] | None = Field(
        default=None, description="Public names of the classes in label order, separated by commas."
    )

    unit: str | None = Field(
        default=None,
        pattern=NAME_PATTERN,
        description="Word for one privacy unit if images are grouped, for example `patient`; left out, `group`.",
    )
    records_per_unit: Integer | None = Field(
        default=None,
        ge=1,
        le=MAXIMUM_RECORDS_PER_UNIT,
        description="Most training images of one unit; needed if, and only if, the upload groups its images. Public; "
        "statistics of images need this many times the noise.",
    )
    classes_per_unit: Integer | None = Field(
        default=None,
        ge=1,
        description="Most classes that images of one unit belong to; left out, no bound beside `records_per_unit`.",
    )

    public_test: Flag | None = Field(
        default=None,
        description="Whether the test split is public; left out, it is not. Figures measured on it may "
        "then be passed on; otherwise they are for the owner alone. Refused if it holds a training image.",
    )
    account: str | None = Field(
        default=None,
        max_length=64,
        pattern=IDENTIFIER,
        description="Id of a data set whose budget pays for this one, too, for ever: for data that grows, so that the "
        "parts can be trained on together. Leave out `epsilon` and `delta` then.",
    )
    leave_out_constant_images: Flag | None = Field(
        default=None,
        description="Whether training images of a single colour are left out, which would tie the data set to others "
        "that contain the same ones; left out, they stay.",
    )

    @property
    def units(self) -> UnitDeclaration | None:
        """What one unit is, if the images are grouped."""
        if self.records_per_unit is None:
            return None
        return UnitDeclaration(name=self.unit or "group", records=self.records_per_unit, classes=self.classes_per_unit)

    @model_validator(mode="after")
    def _units_are_whole(self) -> Self:
        if self.records_per_unit is None and (self.unit, self.classes_per_unit) != (None, None):
            raise ValueError("unit and classes_per_unit need records_per_unit.")
        return self

    @field_validator("name")
    @classmethod
    def _can_be_shown(cls, name: str | None) -> str | None:
        if name is not None and not name.isprintable():
            raise ValueError("The name must consist of printable characters.")
        return name

    @field_validator("classes", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("classes")
    @classmethod
    def _can_be_told_apart(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        try:
            check_class_names(names or ())
        except InvalidDataset as error:
            raise ValueError(error.detail) from None
        return names
