"""The owner's choices for the reading of an upload; public, and the same for every record."""

from typing import Annotated, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, StringConstraints

from datalens_service.base.fields import Frozen
from datalens_service.data.preparation_settings import PrepareSettings
from datalens_service.data.privacy_units import UnitDeclaration

Encoding = Literal[
    "utf-8", "utf-16", "latin-1", "cp1252", "cp437", "cp850", "cp1250", "cp1251", "koi8-r", "mac-roman", "shift_jis",
    "euc-kr", "big5", "gb18030",
]  # fmt: skip
"""Encodings that an owner may declare, as Python calls them."""

Column = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=100)]


class ReadingChoices(Frozen):
    """The choices for the reading of an upload.

    Attributes:
        class_names: Public names of the classes; None leaves them to the format.
        units: Declaration of a privacy unit, if the upload groups its records; None: every record is one.
        public_test: True if the test split is declared public.
        leave_out_constant_images: True if training images of a single colour are left out.
        preparation: Settings that bring each image to one size and mode; None takes images as they are.
        skip_unreadable: True if files that cannot be read as images, or have no row in the metadata, are left out.
        allow_identifying_classes: True if class names may look like names or numbers of persons.
        ignore_groups: True if every record is a unit although the upload says which records belong together.
        encoding: Encoding of tables without a byte order mark, and of names in archives that do not state theirs; None:
            UTF-8.
        label_column: Column of a table that holds the labels; None takes the usual names.
        infer_units: True if the largest group bounds the records of a unit where `units` is None; for a file that is
            made on the owner's machine and declares no budget.
    """

    class_names: tuple[str, ...] | None = None
    units: UnitDeclaration | None = None
    public_test: bool = False
    leave_out_constant_images: bool = False
    preparation: PrepareSettings | None = None
    skip_unreadable: bool = False
    allow_identifying_classes: bool = False
    ignore_groups: bool = False
    encoding: Encoding | None = None
    label_column: Column | None = Field(default=None)
    group_column: Column | None = Field(default=None)
    infer_units: bool = False

    def settled_preparation(self, first: NDArray[np.uint8] | None) -> PrepareSettings | None:
        """Return the preparation of a split, settled by an earlier training image (height, width, channels)."""
        settings = self.preparation
        return settings if settings is None or first is None else settings.settled(first.shape[2])


AS_IT_IS: Final = ReadingChoices()
"""No choices: everything is read as the file states it."""
