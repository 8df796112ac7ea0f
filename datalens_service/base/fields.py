"""Base classes of strict models, which read no number from a word or from true, and refuse unknown members.

An int counts as a float, as JSON has one kind of number; 1.0 does not count as an int.
"""

from collections.abc import Collection, Container
from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from datalens_service.base.parsing import PrivacyParameter


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("It must consist of printable characters.")
    return text


def _to_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("Must lie within the years 1 to 9999 in UTC.") from None


Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Integer = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Moment = Annotated[AwareDatetime, AfterValidator(_to_utc)]
Stated = Annotated[float, AfterValidator(PrivacyParameter)]
"""A field of a model that holds an ε, δ or μ."""
PRINTABLE: Final = AfterValidator(_check_printable)
"""Refuses a text that cannot be shown in one line."""


def one_of(names: Collection[str]) -> AfterValidator:
    """Refuse a text that is none of these names."""

    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"Must be one of {', '.join(names)}.")
        return name

    return AfterValidator(check)


class Strict(BaseModel):
    """A model that refuses members it does not know; a field with an alias is written under it, and read under both."""

    model_config = ConfigDict(extra="forbid", serialize_by_alias=True, validate_by_name=True)


class Frozen(Strict):
    """A strict model whose values never change."""

    model_config = ConfigDict(frozen=True)


class Finite(Frozen):
    """A frozen model whose floats are neither infinite nor undefined."""

    model_config = ConfigDict(allow_inf_nan=False)


Kind = TypeVar("Kind")
_NONE: Final = object()


def copied(kind: type[Kind], source: object, /, **others: Any) -> Kind:
    """Make a data class or model from the members of another object that have the same names.

    Args:
        others: Members that the object lacks, or that differ from its own; one of neither has its default.
    """
    return kind(**read_members(kind, source, others), **others)


def read_members(kind: type, source: object, others: Container[str]) -> dict[str, Any]:
    """Return what an object has under the names of the members of a data class or model, but for some others."""
    names: Any = getattr(kind, "model_fields", None) or kind.__dataclass_fields__  # type: ignore[attr-defined]
    values = {name: getattr(source, name, _NONE) for name in names if name not in others}
    return {name: value for name, value in values.items() if value is not _NONE}
