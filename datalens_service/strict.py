"""Types of members that a client sends: a number is a number, and neither a word nor true is one.

An int counts as a float, as JSON has one kind of number; 1.0 does not count as an int.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Integer = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
