"""Disclosure: public fields are marked where they are defined, and figures for the owner's eyes are sealed.

Whatever leaves for others (reports, cards, events, messages, metrics) is built from `public_part`: a field that was not
declared public is not in it, nor in anything that is made of it. The audiences of figures, files, reports and reads
have a type each.
"""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Annotated, Any, Final, Generic, Literal, NoReturn, TypeVar, get_type_hints

from pydantic import BaseModel, GetCoreSchemaHandler
from pydantic_core import core_schema

T = TypeVar("T")

_BY_FIELD: Final = "anybody may see it; of a value with fields, those of them that are public"
_WHOLE: Final = "anybody may see it with all that its type has and will have"
_PLAIN: Final = (type(None), bool, int, float, str, datetime.date)

Public = Annotated[T, _BY_FIELD]
"""A field that anybody may see; of a value with fields, those of them that are public."""
AllPublic = Annotated[T, _WHOLE]
"""A field whose value is released or known before any record is read: public with all that its type will ever have."""

FigureAudience = Literal["public", "owner"]
"""Those who may see a measured figure."""
FileAudience = Literal["anyone", "owner"]
"""Those who may get a file of a job."""
ReportAudience = Literal["owner", "releasable"]
"""The copy of a report: the owner's, or the one for everybody else."""
ReadAudience = Literal["owner", "owner and operators", "nobody"]
"""Those who see what depends on a private read, beyond what the guarantee covers."""


class NotPublicError(TypeError):
    """A value for the owner was about to be shown to anybody."""


class Private(Generic[T]):
    """A figure for the owner's eyes: it can be neither printed nor written, and only `for_owner` reads it.

    Args:
        value: May depend on private records without a charge.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value: Final = value

    def for_owner(self) -> T:
        """Return the figure. A test lists the functions that call this, whose results are for the owner alone."""
        return self._value

    def _refuse(self, *_: object) -> NoReturn:
        raise NotPublicError("A figure for the owner is shown to nobody else.")

    __repr__ = __str__ = __format__ = __reduce_ex__ = _refuse

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Allow it as a member of models, and refuse to write it."""
        refused = core_schema.plain_serializer_function_ser_schema(cls._refuse)
        return core_schema.is_instance_schema(cls, serialization=refused)


def public_fields(value: Any) -> dict[str, Any]:
    """Return the public fields of a model or data class by name, each with its public part."""
    declared = {name: (marker, getattr(value, name)) for name, marker in _declared(type(value)).items()}
    return {name: one if marker is _WHOLE else public_part(one) for name, (marker, one) in declared.items()}


def public_part(value: T) -> T:
    """Return the value, with a default for every field that is not declared public.

    Raises:
        NotPublicError: Such a field has no default, or the value is of a type that has no fields and is not plain.
    """
    kind: Any = type(value)
    part: Any = value
    if isinstance(value, BaseModel):
        part = kind.model_construct(**_with_defaults(value))
    elif dataclasses.is_dataclass(value):
        part = kind(**public_fields(value))
    elif isinstance(value, tuple | list):
        part = kind(map(public_part, value))
    elif isinstance(value, Mapping):
        part = {key: public_part(one) for key, one in value.items()}
    elif not isinstance(value, _PLAIN):
        raise NotPublicError(f"Nothing says what of {type(value).__name__} is public.")
    return part  # type: ignore[no-any-return]


def _with_defaults(value: BaseModel) -> dict[str, Any]:
    shown = public_fields(value)
    for name, field in type(value).model_fields.items():
        if name not in shown and field.is_required():
            raise NotPublicError(f"{type(value).__name__}.{name} is not declared public and has no default.")
    return shown


def _declared(kind: type) -> dict[str, str]:
    """Return the marker of each public field of a class, by name."""
    if issubclass(kind, BaseModel):
        metadata = {name: field.metadata for name, field in kind.model_fields.items()}
    else:
        hints = get_type_hints(kind, include_extras=True)
        metadata = {name: list(getattr(hint, "__metadata__", ())) for name, hint in hints.items()}
    return {name: one for name, given in metadata.items() for one in given if one in (_BY_FIELD, _WHOLE)}
