"""The API description: what operations say about their answers, and the document made from all of it."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from datalens_service.api.problems.handlers import MEDIA_TYPE, Problem, document
from datalens_service.api.problems.problem_types import PROBLEM_TYPES, ProblemType
from datalens_service.api.security.permissions import find_rule
from datalens_service.base.errors import BudgetExceeded, InvalidDataset, InvalidInput, RateLimited

Json = dict[str, Any]
Responses = dict[int | str, Json]

TITLE: Final = "DataLens Service"
DESCRIPTION: Final = (
    "Private labelled images in, differentially private synthetic images out.\n\n"
    "Upload a dataset with a lifetime privacy budget, price a training request, submit it, follow the job, "
    "download synthetic images and the report. ε that was spent is rounded up, ε that remains is rounded down. "
    "Every error is `application/problem+json` (RFC 9457) with a stable `type`.\n\n"
    "Every request under `/v1` carries `Authorization: Bearer dlk_…`; `x-scope` of an operation is what its key needs. "
    'Numbers are read strictly: neither `true` nor `"1"` is one. Lists come in pages: pass `next_cursor` as `after` '
    "while `has_more`."
)
TAGS: Final = (
    {"name": "uploads", "description": "Files that arrive in chunks, as tus 1.0 describes it."},
    {"name": "datasets", "description": "Private image sets and their budgets."},
    {"name": "plans", "description": "What a training request would cost."},
    {"name": "jobs", "description": "Training jobs."},
    {"name": "audits", "description": "Attacks on methods and released models. What they find is for the owner alone."},
    {"name": "downloads", "description": "What a job has made."},
    {"name": "releases", "description": "Releases in words, and links for partners."},
    {"name": "generators", "description": "Sample more images; export and import generators."},
    {"name": "classifiers", "description": "Predict, free of further cost; individual ε of a record."},
    {"name": "access", "description": "Keys, usage, and who did what."},
    {"name": "tenants", "description": "For how long things are kept; tenants, their quotas and their removal."},
    {"name": "webhooks", "description": "Notifications about job state changes."},
    {"name": "health", "description": "For load balancers and operators; need no key."},
    {"name": "problems", "description": "What the errors mean; needs no key."},
)
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_SCHEMAS: Final = "#/components/schemas/"
_MADE: Final = "x-made"
_BYTES: Final[Json] = {"schema": {"type": "string", "format": "binary"}}
_REQUEST_ID: Final = "00000000-0000-4000-8000-000000000000"
_MEMBERS: Final[dict[str, Json]] = {
    InvalidInput.slug: {
        "errors": [
            {"in": "body", "pointer": "#/spec/epsilon", "detail": "Must be greater than 0.", "code": "greater_than"}
        ]
    },
    RateLimited.slug: {"retry_after": 2},
    InvalidDataset.slug: {
        "bad_files": [
            {
                "name": "7/0042.png",
                "reason": "This is a HEIC picture, as iPhones take them, which is not read. Export it as JPEG or PNG.",
            }
        ],
        "bad_count": 1,
        "checked": 60_000,
    },
    BudgetExceeded.slug: {
        "budget": {
            "epsilon_limit": 10.0,
            "epsilon_spent": 4.0,
            "epsilon_reserved": 8.0,
            "epsilon_remaining": 2.4852,
            "epsilon_requested": 8.0,
            "delta": 1e-5,
        }
    },
}
_HEADERS: Final[dict[str, Json]] = {
    "Location": {"description": "Path of the new object.", "schema": {"type": "string"}},
    "Retry-After": {"description": "Seconds after which to look again.", "schema": {"type": "integer"}},
    "Upload-Offset": {"description": "Bytes that are there.", "schema": {"type": "integer"}},
    "Upload-Expires": {"description": "When it is removed.", "schema": {"type": "string"}},
    "Tus-Resumable": {"description": "Version of the protocol: 1.0.0.", "schema": {"type": "string"}},
    "ETag": {"description": "SHA-256 of the whole file, in quotes.", "schema": {"type": "string"}},
    "Repr-Digest": {"description": "The same as RFC 9530 writes it.", "schema": {"type": "string"}},
    "Accept-Ranges": {"description": "bytes", "schema": {"type": "string"}},
}


def ok(status: int, description: str, *slugs: str, headers: Sequence[str] = (), made: str | None = None) -> Responses:
    """Describe a successful answer, and the errors that an operation may answer with.

    Args:
        slugs: As those of `problems`.
        made: Parameter of paths, such as `job_id`, that is the `id` in this answer: it gets OpenAPI links to all
            operations on such an object.
    """
    answer: Json = {"description": description}
    if headers:
        answer["headers"] = {name: _HEADERS[name] for name in headers}
    return {status: answer if made is None else {**answer, _MADE: made}, **problems(*slugs)}


def file_content(description: str, *media_types: str) -> Responses:
    """A file as the answer, whole, in part or not at all because the client has it."""
    headers = {name: _HEADERS[name] for name in ("ETag", "Repr-Digest", "Accept-Ranges")}
    part = {"application/octet-stream": _BYTES}
    whole = {name: _file_media(name) for name in media_types}
    return {
        200: {"description": description, "content": whole, "headers": headers},
        206: {"description": "The bytes that `Range` names.", "content": part, "headers": headers},
        304: {"description": "The client has it: `If-None-Match` holds its ETag."},
    }


def private_picture(description: str) -> Responses:
    """A PNG of private records as the answer."""
    return {200: {"description": description, "content": {"image/png": _BYTES}}}


def problems(*slugs: str) -> Responses:
    """The errors an operation may answer with, by status, each type with an example.

    Input that cannot be used is always one, and so is what an address names and is not there.
    """
    by_status: defaultdict[int, list[ProblemType]] = defaultdict(list)
    for slug in slugs:
        problem = PROBLEM_TYPES[slug]
        by_status[problem.status or 500].append(problem)
    return {status: _problem_answer(types) for status, types in by_status.items()}


def form_body(form: type[BaseModel], file_field: str, file_description: str, example: Json) -> Json:
    """`openapi_extra` of an operation that takes a file and the fields of `form`."""
    schema = form.model_json_schema()
    file = {"type": "string", "format": "binary", "description": file_description}
    # In a form all values are text; tuples are sent as one field with commas.
    fields = {name: _as_text(member) for name, member in schema["properties"].items()}
    body = {
        "type": "object",
        "title": form.__name__,
        "properties": {file_field: file, **fields},
        "required": [file_field],
        "additionalProperties": False,
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": body, "example": example}}}}


def describe(app: FastAPI) -> Json:
    """The OpenAPI document of the application."""
    described = get_openapi(
        title=TITLE,
        version=version("datalens-service"),
        description=DESCRIPTION,
        routes=app.routes,
        tags=[dict(tag) for tag in TAGS],
        servers=[{"url": "/", "description": "This service."}],
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    described["components"]["schemas"].update(_problem_schemas())
    _name_forms(described)
    _explain_object_defaults(described["components"]["schemas"])
    _add_links(described)
    _add_access(described)
    _add_absence(described)
    return described


def _name_forms(described: Json) -> None:
    """Move the schemas of forms among the others, where generators of clients take their names from."""
    for operation in (one for methods in described["paths"].values() for one in methods.values()):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            if (form := content["schema"]).get("type") == "object":
                described["components"]["schemas"][form["title"]] = form
                named = {**content, "schema": {"$ref": _SCHEMAS + form["title"]}}
                # The declaration of the route stays as it is.
                operation["requestBody"] = {**operation["requestBody"], "content": {media_type: named}}


def _explain_object_defaults(schemas: Json) -> None:
    """Move defaults that are or hold objects from the schemas into their descriptions.

    A generator of clients leaves out a schema with such a default, or writes the default into every request.
    """
    members = [one for schema in schemas.values() for one in list_schemas(schema)]
    found = [one for one in members if holds_object(one.get("default"))]
    texts = [_describe_default(schemas, one) for one in found]
    for one, text in zip(found, texts, strict=True):
        del one["default"]
        if text:
            one["description"] = f"{one.get('description', '')} {text}".strip()


def holds_object(value: Any) -> bool:
    """Return True if a JSON value is an object, or an array with one in it."""
    return isinstance(value, dict) or (isinstance(value, list) and any(map(holds_object, value)))


def list_schemas(schema: Json) -> Iterator[Json]:
    """A schema and all schemas within it, without those it refers to."""
    yield schema
    inner = [schema[name] for name in ("items", "additionalProperties") if isinstance(schema.get(name), dict)]
    inner += [one for name in ("anyOf", "oneOf", "allOf", "prefixItems") for one in schema.get(name, ())]
    for one in (*inner, *schema.get("properties", {}).values()):
        yield from list_schemas(one)


def _describe_default(schemas: Json, member: Json) -> str:
    """Say what a member is if it is left out; of an object, what differs from the defaults of its own members."""
    default = member["default"]
    if isinstance(default, list):
        return f"Left out: `{json.dumps(default)}`."
    referred = [one["$ref"] for one in list_schemas(member) if "$ref" in one]
    kinds = [schemas[name.removeprefix(_SCHEMAS)]["properties"] for name in referred]
    own: Json = next((kind for kind in kinds if kind.get("name", {}).get("const") == default.get("name")), {})
    told = {
        name: value for name, value in default.items() if name == "name" or value != own.get(name, {}).get("default")
    }
    return f"Left out: `{json.dumps(told)}`." if told else ""


def _add_links(described: Json) -> None:
    """Add links from an answer about a new object to every operation on it that needs no further name."""
    operations = [(path, one) for path, methods in described["paths"].items() for one in methods.values()]
    for answer in (answer for _, operation in operations for answer in operation["responses"].values()):
        if made := answer.pop(_MADE, None):
            known = {"parameters": {made: "$response.body#/id"}}
            names = [one["operationId"] for path, one in operations if _PARAMETER.findall(path) == [made]]
            answer["links"] = {name: {"operationId": name, **known} for name in names}


def _add_access(described: Json) -> None:
    """Every operation that takes a key says which scope it needs, and may refuse for want of it or for haste."""
    refusals = problems("forbidden", "rate-limited")
    for methods in described["paths"].values():
        for operation in methods.values():
            if not operation.get("security"):
                continue
            rule = find_rule(operation["operationId"])
            operation["x-scope"] = rule.scope
            operation["x-audited"] = rule.audited
            for status, answer in refusals.items():
                operation["responses"].setdefault(str(status), answer)
            too_many = operation["responses"]["429"]
            too_many["headers"] = {"Retry-After": _HEADERS["Retry-After"]}


def _add_absence(described: Json) -> None:
    """Whatever an address names may not be there."""
    absent = problems("not-found")[404]
    for path, methods in described["paths"].items():
        for operation in methods.values() if "{" in path else ():
            operation["responses"].setdefault("404", absent)


def _problem_schemas() -> Json:
    schema = Problem.model_json_schema(ref_template=_SCHEMAS + "{model}")
    return {**schema.pop("$defs"), "Problem": schema}


def _problem_answer(types: Sequence[ProblemType]) -> Json:
    examples = {
        problem.slug: {
            "summary": problem.title,
            "value": document(problem, problem.remedy, _REQUEST_ID, **_MEMBERS.get(problem.slug, {})),
        }
        for problem in types
    }
    content = {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}, "examples": examples}}
    return {"description": " Or: ".join(problem.meaning for problem in types), "content": content}


def _file_media(media_type: str) -> Json:
    if media_type == "application/json":
        return {"schema": {"type": "object"}}
    return {"schema": {"type": "string"}} if media_type.startswith("text/") else _BYTES


def _as_text(member: Json) -> Json:
    [kind] = [one for one in member.get("anyOf", [member]) if one.get("type") != "null"]
    kind = {"type": "string"} if kind["type"] == "array" else kind
    return {**kind, "description": member["description"]}
