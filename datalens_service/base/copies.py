"""Objects of one kind made from those of another that have members of the same names."""

from collections.abc import Container
from typing import Any, Final, TypeVar

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
