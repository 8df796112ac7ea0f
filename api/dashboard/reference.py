"""The API reference as pages show it: everything in it comes from the OpenAPI document that programs read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from api.problems.handlers import MEDIA_TYPE

Json = Mapping[str, Any]

_OBJECTS: Final = "#/components/schemas/"
_FORMATS: Final = {"date-time": "date and time", "binary": "bytes"}
_LIMITS: Final = (
    ("exclusiveMinimum", "> {}"),
    ("minimum", "≥ {}"),
    ("exclusiveMaximum", "< {}"),
    ("maximum", "≤ {}"),
    ("minLength", "length ≥ {}"),
    ("maxLength", "length ≤ {}"),
    ("minItems", "items ≥ {}"),
    ("maxItems", "items ≤ {}"),
    ("pattern", "pattern {}"),
)
_ALTERNATIVES: Final = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True)
class Part:
    """A piece of the name of a type; `target` is the object that it names, if it is one."""

    text: str
    target: str | None = None


Kind = tuple[Part, ...]


@dataclass(frozen=True)
class Member:
    """A parameter, a header, or a member of an object."""

    name: str
    kind: Kind
    required: bool
    default: str | None
    limits: tuple[str, ...]
    description: str
    place: str = ""


@dataclass(frozen=True)
class ObjectShape:
    """An object or a set of values that operations share."""

    name: str
    title: str
    description: str
    members: tuple[Member, ...]
    kind: Kind


@dataclass(frozen=True)
class Content:
    """A body that is sent or answered, in one media type."""

    media_type: str
    kind: Kind
    members: tuple[Member, ...]
    examples: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Answer:
    """A successful answer."""

    status: str
    description: str
    contents: tuple[Content, ...]
    headers: tuple[Member, ...]


@dataclass(frozen=True)
class ProblemLink:
    """A type of problem that an operation may answer with."""

    status: str
    slug: str
    title: str


@dataclass(frozen=True)
class Operation:
    """One operation of the API, with all that is known of it."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    scope: str | None
    needs_key: bool
    parameters: tuple[Member, ...]
    bodies: tuple[Content, ...]
    answers: tuple[Answer, ...]
    problems: tuple[ProblemLink, ...]
    curl: str


@dataclass(frozen=True)
class Section:
    """Operations that belong together, and the objects they name."""

    name: str
    description: str
    operations: tuple[Operation, ...]
    objects: tuple[ObjectShape, ...]


def sections(document: Json) -> tuple[Section, ...]:
    """The whole reference, in the order of the document.

    Args:
        document: OpenAPI 3.1.
    """
    return tuple(_section(document, tag) for tag in document["tags"])


def _section(document: Json, tag: Json) -> Section:
    entries = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    ]
    operations = tuple(_operation(*one) for one in entries)
    names = _named(document, [operation for _, _, operation in entries])
    shapes = tuple(_shape(name, document["components"]["schemas"][name]) for name in names)
    return Section(tag["name"], tag["description"], operations, shapes)


def _operation(path: str, method: str, operation: Json) -> Operation:
    bodies = tuple(_contents(operation.get("requestBody", {})))
    parameters = tuple(_parameter(one) for one in operation.get("parameters", ()))
    answers = {status: one for status, one in operation["responses"].items() if status < "4"}
    needs_key = bool(operation.get("security"))
    return Operation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        description=operation["description"],
        scope=operation.get("x-scope"),
        needs_key=needs_key,
        parameters=parameters,
        bodies=bodies,
        answers=tuple(_answer(status, one) for status, one in answers.items()),
        problems=tuple(_problems(operation["responses"])),
        curl=_curl(path, method.upper(), parameters, operation, needs_key=needs_key),
    )


def _parameter(one: Json) -> Member:
    # A parameter that is left out is null to the program; nobody can send null.
    kinds = [kind for kind in one["schema"].get("anyOf", ()) if kind != {"type": "null"}]
    schema = {**one["schema"], "description": one.get("description", ""), **({"anyOf": kinds} if kinds else {})}
    return _member(one["name"], schema, required=one.get("required", False), place=one["in"])


def _member(name: str, schema: Json, *, required: bool, place: str = "") -> Member:
    default = json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else None
    return Member(
        name=name,
        kind=_kind(schema.get("schema", schema)),
        required=required,
        # Null stands for "left out", which the word optional says.
        default=None if default in (None, "null") else default,
        limits=tuple(_limits(schema)),
        description=schema.get("description", ""),
        place=place,
    )


def _members(schema: Json) -> tuple[Member, ...]:
    required = schema.get("required", ())
    return tuple(_member(name, one, required=name in required) for name, one in schema.get("properties", {}).items())


def _shape(name: str, schema: Json) -> ObjectShape:
    members = _members(schema)
    return ObjectShape(name, _title(name), schema.get("description", ""), members, () if members else _kind(schema))


def _answer(status: str, answer: Json) -> Answer:
    headers = tuple(_member(name, one, required=True) for name, one in answer.get("headers", {}).items())
    return Answer(status, answer["description"], tuple(_contents(answer)), headers)


def _contents(holder: Json) -> Iterator[Content]:
    for media_type, media in holder.get("content", {}).items():
        schema = media.get("schema", {})
        examples = [("Example", media["example"])] if "example" in media else []
        examples += [(one["summary"], one["value"]) for one in media.get("examples", {}).values()]
        shown = tuple((title, _pretty(value)) for title, value in examples if media_type != "multipart/form-data")
        yield Content(media_type, _kind(schema), _members(schema), shown)


def _problems(responses: Json) -> Iterator[ProblemLink]:
    for status, answer in responses.items():
        for slug, example in answer.get("content", {}).get(MEDIA_TYPE, {}).get("examples", {}).items():
            yield ProblemLink(status, slug, example["summary"])


def _title(name: str) -> str:
    """Page_JobRead_ is how a generic model is named in the document."""
    return re.sub(r"^(\w+?)_(\w+)_$", r"\1 of \2", name)


def _kind(schema: Json) -> Kind:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_OBJECTS)
        return (Part(_title(name), name),)
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return (Part(" or ".join(json.dumps(value, ensure_ascii=False) for value in values)),)
    alternatives = [one for key in _ALTERNATIVES for one in schema.get(key, ())]
    if alternatives:
        return tuple(_joined([_kind(one) for one in alternatives]))
    if schema.get("type") == "array":
        return (Part("array of "), *_kind(schema.get("items", {})))
    if isinstance(schema.get("additionalProperties"), Mapping):
        return (Part("object of "), *_kind(schema["additionalProperties"]))
    named = schema.get("type", "any value")
    plain = named if isinstance(named, str) else " or ".join(named)
    return (Part(_FORMATS.get(schema.get("format", ""), plain)),)


def _joined(kinds: Iterable[Kind]) -> Iterator[Part]:
    for number, kind in enumerate(kinds):
        if number:
            yield Part(" or ")
        yield from kind


def _limits(schema: Json) -> Iterator[str]:
    for one in (schema, *schema.get("anyOf", ())):
        for key, sentence in _LIMITS:
            if key in one:
                yield sentence.format(_number(one[key]) if key != "pattern" else one[key])


def _number(value: float) -> str:
    """As people read it; JSON Schema writes limits of integers as floats."""
    exponent = math.log2(value) if value >= 2**53 else 0.5
    return f"2^{exponent:.0f}" if exponent.is_integer() else f"{value:,.15g}"


def _named(document: Json, roots: list[Json]) -> list[str]:
    """Objects that something names, directly or through others; problems have pages of their own."""
    schemas = document["components"]["schemas"]
    seen: dict[str, None] = {}
    waiting: list[Any] = [_without_problems(root) for root in roots]
    while waiting:
        for name in re.findall(rf'"{_OBJECTS}(\w+)"', json.dumps(waiting.pop(0))):
            if name not in seen:
                seen[name] = None
                waiting.append(schemas[name])
    return sorted(seen)


def _without_problems(operation: Json) -> Json:
    answers = {status: answer for status, answer in operation["responses"].items() if status < "4"}
    return {**operation, "responses": answers}


def _curl(path: str, method: str, parameters: Iterable[Member], operation: Json, *, needs_key: bool) -> str:
    """A command that works once its variables are set."""
    words = ['-H "Authorization: Bearer $KEY"'] if needs_key else []
    words += [f'-H "{one.name}: …"' for one in parameters if one.place == "header" and one.required]
    body = list(_sent(operation.get("requestBody", {}).get("content", {})))
    verb = {"GET": [], "HEAD": ["--head"]}.get(method, [] if method == "POST" and body else [f"-X {method}"])
    address = re.sub(r"\{(\w+)\}", lambda match: f"${{{match[1].upper()}}}", path)
    first = " ".join(["curl -s", *_saving(operation), *verb, *words])
    return " \\\n     ".join([first, *body, f'"$DATALENS{address}"'])


def _saving(operation: Json) -> list[str]:
    answered = operation["responses"].get("200", {}).get("content", {})
    return ["-OJ"] if answered and not {"application/json", "text/event-stream", "text/plain"} & set(answered) else []


def _sent(content: Json) -> Iterator[str]:
    """The first of the bodies that an operation takes."""
    for media_type, media in content.items():
        given: Any = media.get("example") or next((one["value"] for one in media.get("examples", {}).values()), {})
        if media_type == "multipart/form-data":
            yield " ".join(f"-F {name}={value}" for name, value in given.items())
        elif media_type == "application/json":
            yield "--json " + _quoted(json.dumps(given, ensure_ascii=False))
        else:
            yield f'-H "Content-Type: {media_type}" --data-binary @chunk'
        return


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _pretty(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
