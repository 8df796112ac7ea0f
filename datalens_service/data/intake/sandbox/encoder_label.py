"""The label in the file of an encoder: its owner's words, which nobody has checked."""

import operator
from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, ValidationError

from datalens_service.base.fields import PRINTABLE, Frozen

_PREFIX: Final = "datalens."

MOST_TITLE: Final = 100
MOST_LICENSE: Final = 200
"""Characters."""

EncoderTitle = Annotated[str, StringConstraints(max_length=MOST_TITLE), PRINTABLE]
EncoderLicense = Annotated[str, StringConstraints(max_length=MOST_LICENSE), PRINTABLE]


class EncoderLabel(Frozen):
    """Name and licence of an encoder, and the hash of the weights that it was made from."""

    title: EncoderTitle = Field(
        default="", exclude_if=operator.not_, description="What its owner calls it; empty if nothing was stated."
    )
    license: EncoderLicense = Field(
        default="",
        exclude_if=operator.not_,
        description="Licence of its weights as its owner declared it, in words; empty if none was declared.",
    )
    weights_sha256: str = Field(
        default="",
        pattern=r"^([0-9a-f]{64})?$",
        exclude_if=operator.not_,
        description="SHA-256 of the file of weights that it was made from, as its owner stated it; empty if unknown.",
    )

    def as_metadata(self) -> dict[str, str]:
        """Return what the file of the encoder holds as its metadata."""
        return {_PREFIX + name: value for name, value in self.model_dump().items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Self:
        """Read the metadata of a file; what does not fit is left out."""
        stated = {name: metadata.get(_PREFIX + name, "") for name in cls.model_fields}
        return cls(**{name: value for name, value in stated.items() if _fits(name, value)})


def _fits(name: str, value: str) -> bool:
    try:
        EncoderLabel.model_validate({name: value})
    except ValidationError:
        return False
    return True
