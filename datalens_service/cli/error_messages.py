"""Explains what is wrong with a typed training request: where, what was given, and what is nearest."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from datalens_service.base.wording import speak_path

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_LONGEST_LIST: Final = 40

Node = dict[str, Any]


def describe_error(error: ValidationError, model: type[BaseModel] | None = None) -> str:
    """The first complaint: where it is, what was given, and the names that are known there."""
    first = error.errors(include_url=False)[0]
    location = _location([str(part) for part in first["loc"]], model)
    message = _message(first, model)
    return f"{location}: {message}." if location else f"{message}."


def _location(path: Sequence[str], model: type[BaseModel] | None) -> str:
    """The option that says it; where none does, the place in the request."""
    if model is None:
        return speak_path(path) or ".".join(path)
    shared = path[:1] in (["method"], ["evaluation"]) and len(path) > 1
    return f"--set {_typed(model, path)}" if shared else speak_path(["spec", *path]) or ".".join(path)


def _message(first: ErrorDetails, model: type[BaseModel] | None) -> str:
    plain = first["msg"].removeprefix("Value error, ").rstrip(".")
    if first["type"] == "union_tag_invalid":
        context = first["ctx"]
        names = [name.strip(" '") for name in str(context["expected_tags"]).split(",")]
        return f"there is no {str(context['tag'])!r}{_suggest(str(context['tag']), names)}"
    if first["type"] == "union_tag_not_found" and model is not None:
        kinds = _kinds(model, [str(part) for part in first["loc"]])
        return (
            f"say which one it is, for example --set {first['loc'][-1]}.name={kinds[0]}; known are {', '.join(kinds)}"
        )
    if first["type"] == "extra_forbidden" and model is not None:
        *path, last = first["loc"]
        names = sorted(_known_names(model, [str(part) for part in path]))
        if path[:1] == ["method"] and (last in _known_names(model, ["evaluation"])):
            return f"there is no parameter of this name; did you mean evaluation.{last}?"
        return f"there is no parameter of this name{_suggest(str(last), names)}"
    given = first.get("input")
    said = f"{plain}, not {given!r}" if isinstance(given, str | int | float) and "not" not in plain else plain
    return said + _example([str(part) for part in first["loc"]], model)


def _example(path: Sequence[str], model: type[BaseModel] | None) -> str:
    """An option that is right: the default's, for a parameter that has one."""
    if model is None or not path:
        return ""
    parents = _nodes(model, path[:-1])
    defaults = [node.get("properties", {}).get(path[-1], {}).get("default") for node in parents]
    usable = [value for value in defaults if isinstance(value, str | int | float)]
    written = next((value if isinstance(value, str) else json.dumps(value) for value in usable), "")
    return f"; for example --set {_typed(model, path)}={written}" if usable else ""


def _typed(model: type[BaseModel], path: Sequence[str]) -> str:
    """A parameter as `--set` names it: without the names of the alternatives that it is in."""
    names = [part for at, part in enumerate(path) if part not in _kinds(model, path[:at])]
    return ".".join(names[1:] if names[0] == "method" else names)


def _suggest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    meant = f"; did you mean {' or '.join(near)}?" if near else ""
    listed = f" Known here: {', '.join(names)}" if 0 < len(names) <= _LONGEST_LIST else ""
    return (meant or ".") + listed if listed or meant else ""


def _known_names(model: type[BaseModel], path: Sequence[str]) -> set[str]:
    """Parameters at a place of the request, from its JSON schema."""
    return {name for node in _nodes(model, path) for name in node.get("properties", {})} - {"name"}


def _kinds(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Names of the alternatives at a place of the request."""
    return [tag for node in _nodes(model, path) for tag in node.get("discriminator", {}).get("mapping", {})]


def _nodes(model: type[BaseModel], path: Sequence[str]) -> list[Node]:
    schema = model.model_json_schema()
    nodes: list[Node] = [schema]
    for part in path:
        nodes = [inner for node in nodes for inner in _step(schema, node, part)]
    return nodes


def _step(schema: Node, node: Node, part: str) -> Iterator[Node]:
    """Follow a name of a property, or the tag of an alternative."""
    for one in _alternatives(schema, node):
        tags = one.get("discriminator", {}).get("mapping", {})
        if part in tags:
            yield from _alternatives(schema, {"$ref": tags[part]})
        elif part in one.get("properties", {}):
            yield from _alternatives(schema, one["properties"][part])


def _alternatives(schema: Node, node: Node) -> Iterable[Node]:
    """The node, and what it refers to or chooses from."""
    if "$ref" in node:
        return _alternatives(schema, schema["$defs"][node["$ref"].rpartition("/")[2]])
    inner = [part for part in node.get("anyOf", []) if part.get("type") != "null"]
    return [node, *(one for part in inner for one in _alternatives(schema, part))]
