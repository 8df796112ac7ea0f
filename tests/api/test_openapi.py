"""The API description: valid, complete, and changed only on purpose."""

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from api_builders import description
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from datalens_service.api.documents import DESCRIPTION_FILE, documents, snapshot
from datalens_service.api.problems.problem_types import PROBLEM_TYPES
from datalens_service.api.schemas.common import DATASET_STATES
from datalens_service.api.schemas.jobs import JOB_STATES
from datalens_service.store.datasets.datasets import DatasetState
from datalens_service.store.jobs.jobs import JobState
from repository import ROOT

VERBS = (
    "append|create|list|get|confirm|update|delete|cancel|pause|resume|clone|rotate|revoke|raise|import|redeliver|test|"
    "release|withhold"
)
OPEN = {"getLiveness", "getReadiness", "getProblemType", "getDownload", "getSigningKey"}

Operation = dict[str, Any]


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return description()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": document["components"]})


def test_committed_copies_are_what_the_code_says() -> None:
    committed = {path: text for path, text in documents().items() if path != DESCRIPTION_FILE}
    assert len(committed) > 1
    for path, text in committed.items():
        written = (ROOT / path).read_text().splitlines()
        assert written == text.splitlines(), (
            f"run `python -m datalens_service.api.documents` and read the difference of {path}"
        )


@pytest.mark.parametrize(
    ("schema", "member", "changes", "noticed"),
    [
        ("TrainingSpec", "seed", {"description": "Another text."}, False),
        ("TrainingSpec", "seed", {"type": "string"}, True),
        # Members that are called like texts.
        ("Notice", "examples", {"type": "string"}, True),
        ("Problem", "title", {"type": "integer"}, True),
    ],
)
def test_the_snapshot_notices_what_programs_rely_on(
    document: dict[str, Any], schema: str, member: str, changes: dict[str, str], noticed: bool
) -> None:
    changed = copy.deepcopy(document)
    changed["components"]["schemas"][schema]["properties"][member].update(changes)
    assert (list(snapshot(changed)) != list(snapshot(document))) == noticed


def test_is_valid_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    validate(document, cls=OpenAPIV31SpecValidator)


def test_every_operation_says_what_it_is(document: dict[str, Any]) -> None:
    found = list(operations(document))
    identifiers = [operation["operationId"] for _, _, operation in found]
    assert len(set(identifiers)) == len(found) >= 19
    for _, _, operation in found:
        assert re.fullmatch(rf"({VERBS})[A-Z][A-Za-z]+", operation["operationId"]), f"begin it with one of {VERBS}"
        assert operation["summary"]
        assert operation["description"]
        assert len(operation["tags"]) == 1
        assert operation["tags"][0] in {tag["name"] for tag in document["tags"]}, "explain the tag in TAGS"


def test_everything_but_health_problems_and_signed_addresses_needs_a_key(document: dict[str, Any]) -> None:
    assert document["components"]["securitySchemes"]["apiKey"]["scheme"] == "bearer"
    for _, _, operation in operations(document):
        needs = operation.get("security")
        assert needs == (None if operation["operationId"] in OPEN else [{"apiKey": []}]), "put its module into _KEYED"
        assert ("401" in operation["responses"]) == (needs is not None)


def test_every_request_has_valid_examples(document: dict[str, Any]) -> None:
    bodies = [operation["requestBody"] for _, _, operation in operations(document) if "requestBody" in operation]
    assert len(bodies) >= 3
    for media in (media for body in bodies for media in body["content"].values()):
        examples = [one["value"] for one in media.get("examples", {}).values()] or [media["example"]]
        assert examples
        for example in examples:
            validator(document, media["schema"]).validate(example)


def test_every_error_is_a_problem_with_valid_examples(document: dict[str, Any]) -> None:
    shown = set()
    for _, _, operation in operations(document):
        for status, answer in operation["responses"].items():
            if not status.startswith(("4", "5")):
                continue
            [media_type] = answer["content"]
            assert media_type == "application/problem+json"
            for slug, example in answer["content"][media_type]["examples"].items():
                validator(document, answer["content"][media_type]["schema"]).validate(example["value"])
                assert (example["value"]["status"], example["value"]["code"]) == (int(status), slug)
                shown.add(slug)
    http = {slug for slug, problem in PROBLEM_TYPES.items() if problem.status}
    # These two do not belong to an operation.
    assert http - shown == {"method-not-allowed", "stale-lease"}


def test_inputs_refuse_unknown_members(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    inputs = {"TrainingRequest", "DatasetRequest"}
    todo = ["TrainingRequest", "DatasetRequest"]
    while todo:
        for name in re.findall(r"#/components/schemas/([\w-]+)", json.dumps(schemas[todo.pop()])):
            if name not in inputs:
                inputs.add(name)
                todo.append(name)
    assert {"TrainingRequest", "DataLens"} <= {name.removesuffix("-Input") for name in inputs}
    for name in inputs:
        if schemas[name]["type"] == "object":
            assert schemas[name]["additionalProperties"] is False, name


def list_schemas(value: Any, *, names: bool = False) -> Iterator[dict[str, Any]]:
    """Every object within a part of the description that is neither an example nor a map of names."""
    if isinstance(value, list):
        for one in value:
            yield from list_schemas(one)
    elif isinstance(value, dict):
        if not names:
            yield value
        for name, one in value.items():
            if names or name not in ("default", "example", "examples", "links"):
                yield from list_schemas(one, names=not names and name in MAPS)


MAPS = {"properties", "schemas", "responses", "content", "headers", "paths"}
# Generators of clients call functions and types by these.
WORD = re.compile(r"[A-Za-z]\w*")


def as_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def holds_object(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(holds_object, value)))


def test_no_default_is_an_object(document: dict[str, Any]) -> None:
    found = list(list_schemas(document))
    assert sum("default" in one for one in found) > 100
    assert [one for one in found if holds_object(one.get("default"))] == []
    # It is said instead, as far as the object says it itself not.
    texts = {
        (model, member): document["components"]["schemas"][model]["properties"][member].get("description", "")
        for model, member in (("PateGan", "teacher"), ("Rejection", "warm_start"), ("TrainingSpec", "evaluation"))
    }
    assert texts["PateGan", "teacher"].endswith('Left out: `{"batch": 30, "name": "dense"}`.')
    assert '"name": "shapes", "spread": 1.6' in texts["Rejection", "warm_start"]
    assert "Left out" not in texts["TrainingSpec", "evaluation"]


def test_every_operation_takes_one_kind_of_body(document: dict[str, Any]) -> None:
    """Of several, a generator of clients takes one, or makes a function that cannot be imported."""
    bodies = [operation["requestBody"] for _, _, operation in operations(document) if "requestBody" in operation]
    assert len(bodies) > 20
    for body in bodies:
        [content] = body["content"].values()
        assert content["schema"].get("type") != "object", "it has no name that a client could use"


def test_names_make_names_in_every_language(document: dict[str, Any]) -> None:
    identifiers = [operation["operationId"] for _, _, operation in operations(document)]
    schemas = document["components"]["schemas"]
    for names in (identifiers, list(schemas)):
        assert [name for name in names if not WORD.fullmatch(name)] == []
        assert len({as_snake(name) for name in names}) == len(names)
    assert [name for name, schema in schemas.items() if not schema.get("title")] == []
    assert [name for name in schemas if re.search(r"[-_](Input|Output)$", name)] == []


def test_a_union_of_objects_says_how_they_are_told_apart(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    unions = [one for one in list_schemas(document) if "anyOf" in one or "oneOf" in one]
    assert len(unions) > 50
    for union in unions:
        referred = [one["$ref"].rpartition("/")[2] for one in union.get("anyOf", union.get("oneOf")) if "$ref" in one]
        objects = [name for name in referred if schemas[name].get("type") == "object"]
        assert len(objects) < 2 or union["discriminator"]["mapping"], objects


def test_states_are_explained() -> None:
    assert set(JOB_STATES) == set(JobState)
    assert set(DATASET_STATES) == set(DatasetState)
