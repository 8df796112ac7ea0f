"""Declarations of a dataset's owner: its name and classes, its privacy unit, its budget."""

from typing import Annotated, Final, Literal, Self

from pydantic import AliasChoices, Field, StringConstraints, field_validator, model_validator

from datalens_service.base.errors import InvalidDataset
from datalens_service.base.fields import PRINTABLE, Flag, Integer, Number, Strict
from datalens_service.base.wording import speak
from datalens_service.data.image_sizes import parse_size
from datalens_service.data.intake.readers.base import check_class_names
from datalens_service.data.intake.reading_choices import Column, Encoding, ReadingChoices
from datalens_service.data.preparation_settings import Fit, PrepareSettings, SizeText
from datalens_service.data.privacy_units import MAXIMUM_RECORDS_PER_UNIT, NAME_PATTERN, UnitDeclaration

IDENTIFIER: Final = r"^[A-Za-z0-9_-]+$"
"""Pattern of ids; anything else is refused before it reaches the database, which takes no NUL."""

_NOT_PREPARED: Final = "⟦prepare_fit⟧, ⟦prepare_colour⟧, ⟦prepare_window⟧ and ⟦prepare_frame⟧ need ⟦prepare_size⟧."


Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200), PRINTABLE]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500), PRINTABLE]


class BudgetForm(Strict):
    """The budget that an upload opens, or shares."""

    epsilon: Number | None = Field(
        default=None,
        gt=0,
        le=100,
        description="ε of the dataset's whole lifetime. Left out only for records that were uploaded before: "
        "they keep the budget they have.",
    )
    delta: Number | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="δ, below 1/n; left out, it is min(1e-5, n^-1.1). For records that were uploaded before it has to "
        "be the δ of the budget they have.",
    )
    shares_budget_with: str | None = Field(
        default=None,
        max_length=64,
        pattern=IDENTIFIER,
        # Clients of 1.0 say `account`, and so do uploads that wait since then.
        validation_alias=AliasChoices("shares_budget_with", "account"),
        description="Id of a dataset whose budget pays for this one, too, for ever: for data that grows, so that the "
        "parts can be trained on together. Leave out `epsilon` and `delta` then.",
    )


class DatasetForm(BudgetForm):
    """Fields of an upload beside the file."""

    name: Label | None = Field(
        default=None, description="Printable name for people; left out, it is the name of the file, or else the id."
    )
    class_names: tuple[str, ...] | None = Field(
        default=None,
        description="Public names of the classes in label order, separated by commas; naming them confirms them.",
    )
    confirm_classes: Flag | None = Field(
        default=None,
        description="Whether class names that the file brings along become public unseen, so that the budget opens at "
        "once; left out, the upload waits in state `review` until they are confirmed.",
    )

    unit: str | None = Field(
        default=None,
        pattern=NAME_PATTERN,
        description="What one privacy unit is called if images are grouped, for example `patient`; default: `group`.",
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
        "then be passed on; otherwise they are for the owner alone. Refused if it holds a training image, or one of a "
        "person who has training images.",
    )
    public_records: Flag | None = Field(
        default=None,
        description="Whether all records are public, so that jobs may start from them (`public_data`); left out, they "
        "are private. Refused if one of them was uploaded as private. It cannot be changed later.",
    )
    public_license: Words | None = Field(
        default=None,
        description="Under which licence public records may be passed on, for example `CC-BY-4.0, by whom`. It stands "
        "wherever they are handed out; left out, it is said that none was declared.",
    )
    leave_out_constant_images: Flag | None = Field(
        default=None,
        description="Whether training images of a single colour are left out, which would tie the dataset to others "
        "that contain the same ones; left out, they stay.",
    )

    ignore_groups: Flag | None = Field(
        default=None,
        description="Whether every image is protected for itself although the upload says which images belong "
        "together; left out, it is refused without `records_per_unit`. Cards and datasheets say so.",
    )
    allow_identifying_classes: Flag | None = Field(
        default=None,
        description="Whether class names may look like names or numbers of persons, or be as many as persons are; left "
        "out, such an upload is refused, because class names are published.",
    )
    skip_unreadable: Flag | None = Field(
        default=None,
        description="Whether files that cannot be read as images, or that no line of the metadata names, are left out "
        "and counted in `notices`; left out, the upload is refused and names them.",
    )
    encoding: Encoding | None = Field(
        default=None,
        description="Encoding of metadata without a byte order mark, and of names in archives that do not state "
        "theirs; left out, UTF-8. It is never guessed.",
    )
    label_column: Column | None = Field(
        default=None, description="Column of the metadata, or of a table, with the labels; left out, the usual names."
    )
    group_column: Column | None = Field(
        default=None,
        description="Column of the metadata, or of a table, that says which images belong together; left out, the "
        "usual names.",
    )

    prepare_size: SizeText | None = Field(
        default=None,
        description="Pixels to which every image is brought: `64` for a square, `96x48` for width x height, 4 to 256 "
        "each. Left out, images are taken as they are and have one size. With it, images have any size, more kinds of "
        "files are read, and `notices` say what was changed.",
    )
    prepare_fit: Literal["resize", "crop"] | None = Field(
        default=None,
        description="`resize` the whole image (if left out), or scale until it covers the size and `crop`.",
    )
    prepare_colour: Literal["grey", "rgb"] | None = Field(
        default=None,
        description="Channels of all prepared images: `grey` or `rgb`; left out, `rgb` if at least one "
        "training image is in colour.",
    )
    prepare_window: str | None = Field(
        default=None,
        pattern=r"^-?\d{1,9} -?\d{1,9}$",
        description="Lowest and highest value that become 0 and 255 in images of more than 8 bits, with a blank "
        "between. Left out, DICOM files bring their own and 16-bit images are refused.",
    )
    prepare_frame: Integer | None = Field(
        default=None, ge=1, description="Which frame is read of files with several; left out, the first."
    )

    def confirms(self, class_names: tuple[str, ...]) -> bool:
        """Return True if the class names that were read are confirmed already, wholesale or by name."""
        return bool(self.confirm_classes) or self.class_names == class_names

    def with_budget(self, budget: BudgetForm) -> Self:
        """The same with another budget; one that names nothing, not even null, leaves it as it was declared."""
        if not BudgetForm.model_fields.keys() & budget.model_fields_set:
            return self
        return self.model_copy(update={name: getattr(budget, name) for name in BudgetForm.model_fields})

    @property
    def preparation(self) -> PrepareSettings | None:
        """Return how each image is brought to one size and mode, if the owner wants that."""
        if self.prepare_size is None:
            return None
        width, height = parse_size(self.prepare_size)
        window = None if self.prepare_window is None else tuple(map(int, self.prepare_window.split()))
        return PrepareSettings.model_validate(
            {
                "width": width,
                "height": height,
                "fit": self.prepare_fit or Fit.RESIZE,
                "colour": self.prepare_colour,
                "window": window,
                "frame": self.prepare_frame or 1,
            }
        )

    @property
    def units(self) -> UnitDeclaration | None:
        """Return what one unit is, if the images are grouped."""
        if self.records_per_unit is None:
            return None
        return UnitDeclaration(name=self.unit, records=self.records_per_unit, classes=self.classes_per_unit)

    @property
    def choices(self) -> ReadingChoices:
        return ReadingChoices(
            class_names=self.class_names,
            units=self.units,
            public_test=bool(self.public_test),
            leave_out_constant_images=bool(self.leave_out_constant_images),
            preparation=self.preparation,
            skip_unreadable=bool(self.skip_unreadable),
            allow_identifying_classes=bool(self.allow_identifying_classes),
            ignore_groups=bool(self.ignore_groups),
            encoding=self.encoding,
            label_column=self.label_column,
            group_column=self.group_column,
        )

    @model_validator(mode="after")
    def _nothing_lacks_another(self) -> Self:
        if self.records_per_unit is None and (self.unit, self.classes_per_unit) != (None, None):
            raise ValueError(speak("⟦unit⟧ and ⟦classes_per_unit⟧ need ⟦records_per_unit⟧."))
        if self.ignore_groups and self.records_per_unit is not None:
            raise ValueError(
                speak("⟦ignore_groups⟧ protects single images, ⟦records_per_unit⟧ groups: name one of them.")
            )
        if self.public_license is not None and not self.public_records:
            raise ValueError(speak("⟦public_license⟧ needs ⟦public_records⟧."))
        return self

    @model_validator(mode="after")
    def _preparation_is_whole(self) -> Self:
        options = (self.prepare_fit, self.prepare_colour, self.prepare_window, self.prepare_frame)
        if self.prepare_size is None and any(option is not None for option in options):
            raise ValueError(speak(_NOT_PREPARED))
        low, high = map(int, (self.prepare_window or "0 1").split())
        if low >= high:
            raise ValueError(speak("The first value of ⟦prepare_window⟧ must be below its second."))
        return self

    @field_validator("class_names", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("class_names")
    @classmethod
    def _can_be_told_apart(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        try:
            check_class_names(names or ())
        except InvalidDataset as error:
            raise ValueError(error.detail) from None
        return names
