"""Pages of an account's journal, and a wish to raise its limit."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from datalens_service.proof.hash_chain import Entry
from datalens_service.strict import Number

Printable = Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=1000)]


class EntryPage(BaseModel):
    """A page of the journal, oldest first."""

    items: list[Entry]
    has_more: bool
    next_cursor: int | None = Field(description="Value of `after` for the next page; null at the end for now.")


class RaiseRequest(BaseModel):
    """A larger lifetime budget, and why."""

    model_config = ConfigDict(extra="forbid")

    epsilon: Number = Field(gt=0, le=100, description="ε of the whole lifetime from now on, above the present one.")
    reason: Printable = Field(description="Why, and who agreed: for whoever reads the audit journal.")

    @field_validator("reason")
    @classmethod
    def _can_be_shown(cls, reason: str) -> str:
        if not reason.isprintable():
            raise ValueError("The reason must consist of printable characters.")
        return reason
