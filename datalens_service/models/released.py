"""The interface of released models: packaging, evaluation and routes use these members and ask for no type.

A new kind of released model is one class with these members, in one file.
"""

import json
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from datalens_service.base.errors import InvalidInput
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
        evaluations: Kinds of evaluation: "images" for a model that draws, "predictions" for one that labels.
    """

    result: ClassVar[str]
    evaluations: ClassVar[tuple[str, ...]]

    @property
    def schema(self) -> Schema:
        """Return the public schema of the data set that it learned from."""

    def save(self, path: Path) -> None:
        """Write safetensors with kind, schema and settings in the header."""

    def files(self) -> tuple[ReleasedFile, ...]:
        """Return its files, each of which anybody may get."""


def save_model(path: Path, kind: str, schema: Schema, settings: dict[str, Any], tensors: Mapping[str, Any]) -> None:
    """Write safetensors with kind, schema and settings in the header."""
    metadata = {"kind": kind, "schema": schema.model_dump_json(), "settings": json.dumps(settings)}
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, path, metadata)


def load_model(path: Path, kinds: Container[str], noun: str) -> tuple[str, Schema, dict[str, Any], dict[str, Any]]:
    """Read kind, schema, settings and tensors as `save_model` wrote them; no code is executed from the file.

    Raises:
        InvalidInput: Its kind is none of `kinds`.
    """
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        if metadata.get("kind") not in kinds:
            raise InvalidInput(f"{path.name} is not a {noun} of this product.")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    schema = Schema.model_validate_json(metadata["schema"])
    return metadata["kind"], schema, json.loads(metadata["settings"]), tensors


def select_part(tensors: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Select the tensors whose names begin with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def join_parts(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Join the tensors of several parts, each under the prefix of its part and its own name."""
    return {prefix + name: value for prefix, part in parts.items() for name, value in part.items()}
