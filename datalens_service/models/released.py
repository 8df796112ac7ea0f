"""What a method releases, whatever it is: packaging, evaluation and routes walk these members and ask for no type.

A new kind of released model is one class with these members, in one file.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from datalens_service.data.dataset import Schema


class ReleasedFile(NamedTuple):
    """One file that anybody may get."""

    name: str
    media_type: str
    write: Callable[[Path], None]


class ReleasedModel(Protocol):
    """A model that holds released numbers only.

    Attributes:
        result: Kind of model: "generator", "classifier", …
        evaluations: What can be measured of it: "images" of one that draws, "predictions" of one that labels.
    """

    result: ClassVar[str]
    evaluations: ClassVar[tuple[str, ...]]

    @property
    def schema(self) -> Schema:
        """Public schema of the data set that it learned from."""

    def save(self, path: Path) -> None:
        """Write safetensors with kind, schema and settings in the header."""

    def files(self) -> tuple[ReleasedFile, ...]:
        """Its files, each of which anybody may get."""


def select_part(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Those whose names begin with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def join_parts(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """All tensors of several parts, each under the prefix of its part and its own name."""
    return {prefix + name: value for prefix, part in parts.items() for name, value in part.items()}
