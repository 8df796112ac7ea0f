"""What models of members share: a number is a number, and neither a word nor true is one; no member is unknown.

An int counts as a float, as JSON has one kind of number; 1.0 does not count as an int.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Integer = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]


class Strict(BaseModel):
    """Takes no member that it does not know."""

    model_config = ConfigDict(extra="forbid")


class Frozen(Strict):
    """A value."""

    model_config = ConfigDict(frozen=True)


class Finite(Frozen):
    """A value whose floats are neither infinite nor undefined."""

    model_config = ConfigDict(allow_inf_nan=False)
