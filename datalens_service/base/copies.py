"""Objects of one kind made from those of another that have members of the same names."""

from typing import Any, TypeVar

Kind = TypeVar("Kind")


def copied(kind: type[Kind], source: object, /, **others: Any) -> Kind:
    """Make a data class or model from the members of another object that have the same names.

    Args:
        others: Members that the object lacks, or that differ from its own; one of neither has its default.
    """
    names: Any = getattr(kind, "model_fields", None) or kind.__dataclass_fields__  # type: ignore[attr-defined]
    same = {name: getattr(source, name) for name in names if name not in others and hasattr(source, name)}
    return kind(**same, **others)
