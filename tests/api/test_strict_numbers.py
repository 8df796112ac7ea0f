"""Numbers of budgets and training requests, wherever they come in: a number, or a problem that names the member."""

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from api_builders import NUM_RECORDS, application, description, routes, send_images, training
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.http.strictness import StrictRoute
from datalens_service.api.pages.views.planning import read_form
from datalens_service.api.schemas.datasets import DatasetRequest
from datalens_service.base.errors import InvalidSpec
from datalens_service.data.privacy_units import UnitDeclaration
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.store.schema.tables import DatasetRow

JSON = {"Content-Type": "application/json"}


def placed(dataset_id: str, member: str, value: Any) -> dict[str, Any]:
    """A training request with `value` at `member` of its spec."""
    body = training(dataset_id, method={"name": "moments"}, evaluation={})
    *groups, name = member.split("/")
    inner = body["spec"]
    for group in groups:
        inner = inner[group]
    inner[name] = value
    return body


def test_one_point_zero_is_no_integer(client: TestClient, dataset_id: str) -> None:
    for member in ["seed", "synthetic_images", "method/subspace_dimensions", "evaluation/epochs"]:
        reply = client.post("/v1/plans", json=placed(dataset_id, member, 1.0))
        assert reply.status_code == 422, member
        assert reply.json()["errors"] == [
            {"in": "body", "pointer": f"#/spec/{member}", "detail": "Must be a whole number.", "code": "int_type"}
        ]


def test_a_number_is_finite(client: TestClient, dataset_id: str) -> None:
    for number in ["NaN", "Infinity", "-Infinity", "1e999"]:
        for member in ["epsilon", "method/clip_norm"]:
            body = json.dumps(placed(dataset_id, member, "HERE")).replace('"HERE"', number)
            reply = client.post("/v1/jobs", content=body, headers=JSON)
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), number
            assert reply.json()["errors"][0]["pointer"] == f"#/spec/{member}"
            assert reply.json()["errors"][0]["code"] == "finite_number"


def test_of_two_equal_members_none_wins(client: TestClient, dataset_id: str) -> None:
    body = json.dumps(training(dataset_id)).replace('"epsilon": 1.0', '"epsilon": 1.0, "epsilon": 9.0')
    for path in ("/v1/plans", "/v1/jobs"):
        reply = client.post(path, content=body, headers=JSON)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input")
        sentence = "Occurs twice in its object; send it once."
        error = {"in": "body", "pointer": "#/spec/epsilon", "detail": sentence, "code": "duplicate_member"}
        assert reply.json()["errors"] == [error]
        assert reply.json()["detail"] == f"#/spec/epsilon: {sentence}"
    assert client.get("/v1/jobs").json()["items"] == []


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_moment_is_one_in_utc(client: TestClient, moment: str) -> None:
    replies = [client.get("/v1/jobs", params={name: moment}) for name in ("created_after", "created_before")]
    replies.append(client.post("/v1/api-keys", json={"name": "x", "role": "owner", "expires_at": moment}))
    assert [reply.status_code for reply in replies] == [422] * 3
    assert all("1 to 9999" in reply.json()["detail"] for reply in replies)


def test_no_text_has_a_character_that_databases_refuse(client: TestClient, dataset_id: str) -> None:
    audit = {"target": {"kind": "unprotected", "dataset_id": dataset_id}, "groups": {"a\0": ["0"]}}
    for reply, pointer in (
        (client.get("/v1/jobs", params={"search": "a\0"}), "#/search"),
        (client.get("/v1/jobs", params={"method": "\0"}), "#/method"),
        (client.get("/v1/datasets", params={"search": "\0"}), "#/search"),
        (client.post("/v1/webhooks", json={"url": "https://example.org/\0"}), "#/url"),
        (client.post("/v1/audits", json=audit), "#/groups"),
        (client.post("/v1/generators", files={"file": b"x"}, data={"name": "a\0"}), "#/name"),
    ):
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, pointer), reply.url
    assert client.get("/jobs", params={"search": "\0"}).status_code == 422


def json_operations() -> list[tuple[str, str]]:
    operations = []
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            # Images are read once it is known that the classifier is the caller's: `test_classifiers.py`.
            if operation["operationId"] in ("createPredictions", "createIndividualEpsilon"):
                continue
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                operations.append((method, path))
    return operations


def test_every_operation_refuses_equal_members(client: TestClient) -> None:
    assert len(json_operations()) >= 10
    for method, path in json_operations():
        address = re.sub(r"\{\w+\}", "x", path)
        body = b'{"reason": [{"a": 1, "b": 2, "a": 1}]}'
        reply = client.request(method, address, content=body, headers=JSON)
        if reply.status_code == 404:
            # Whose object it is comes first where the body is read by the operation itself.
            pytest.fail(f"{path} looked for its object before it read the body")
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), path
        assert reply.json()["errors"][0]["pointer"] == "#/reason/0/a"


def test_every_route_with_a_body_reads_it_strictly() -> None:
    reading = [route for route in routes(application()) if route.body_field is not None]
    assert len(reading) >= 8
    assert [route.path for route in reading if not isinstance(route, StrictRoute)] == []


def models() -> Iterator[type[BaseModel]]:
    """Every model that a client fills in."""
    waiting: list[Any] = [DatasetForm, DatasetRequest, UnitDeclaration]
    waiting += [
        route.body_field.field_info.annotation for route in routes(application()) if route.body_field is not None
    ]
    seen: set[type[BaseModel]] = set()
    while waiting:
        candidate = waiting.pop()
        waiting += get_args(candidate)
        if isinstance(candidate, type) and issubclass(candidate, BaseModel) and candidate not in seen:
            seen.add(candidate)
            waiting += [field.annotation for field in candidate.model_fields.values()]
            yield candidate


def test_every_number_and_flag_of_every_request_is_strict() -> None:
    lax = [
        f"{model.__name__}.{name} takes {value!r}"
        for model in models()
        for name, field in model.model_fields.items()
        for value in taken_for_another(field)
    ]
    assert lax == []
    names = {model.__name__ for model in models()}
    assert {"TrainingSpec", "Guided", "DataLens", "EvaluationSettings", "RaiseRequest", "KeyCreate"} <= names


def taken_for_another(field: Any) -> Iterator[Any]:
    """Values of other types that the field makes a number or a flag of."""
    leaves = re.findall(r"\b(?:int|float|bool)\b", repr(field.annotation))
    for leaf in leaves:
        for value in {"int": (True, "1", 1.0), "float": (True, "0.5", "1"), "bool": (1, 0, "true", "yes")}[leaf]:
            try:
                TypeAdapter(field.rebuild_annotation()).validate_python(value)
            except ValidationError:
                continue
            yield value


FORMS = [
    ("epsilon", "1_0"),
    ("epsilon", " 10"),
    ("epsilon", "1e999"),
    ("epsilon", "NaN"),
    ("records_per_unit", "1_0"),
    ("public_test", "yes"),
]


def test_a_form_takes_plain_notation_only(client: TestClient, services: Services) -> None:
    for field, text in FORMS:
        reply = send_images(client, **{field: text})
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), field
        assert reply.json()["errors"][0]["pointer"] == f"#/{field}"
        with services.database.session() as session:
            assert session.query(DatasetRow).count() == 0


@pytest.mark.parametrize("text", ["10", "10.0", "1e1", "1E+1", "010"])
def test_a_form_takes_what_people_write(client: TestClient, text: str) -> None:
    delta = f"{0.5 / NUM_RECORDS:.1e}"
    reply = send_images(client, epsilon=text, delta=delta)
    assert reply.status_code == 201, reply.text
    assert reply.json()["privacy"]["epsilon_limit"] == 10
    assert reply.json()["privacy"]["delta"] == float(delta)


def test_queries_take_digits_only(client: TestClient) -> None:
    for text in ["1_0", "%201", "1.0", "+1", "١"]:
        for path in ["/v1/jobs?limit={}", "/v1/audit?after={}"]:
            reply = client.get(path.format(text))
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), text
            assert reply.json()["errors"][0]["detail"] == "Must be a whole number."


@pytest.mark.parametrize("text", ["1_0", " 1", "inf", "١"])
def test_the_form_of_a_plan_takes_plain_notation_only(text: str) -> None:
    for field in ("epsilon", "seed", "synthetic_images"):
        with pytest.raises(InvalidSpec, match=field):
            read_form({"epsilon": "1", field: text})
    with pytest.raises(InvalidSpec, match="evaluation"):
        read_form({"epsilon": "1", "evaluation": "yes"})
    read = read_form({"epsilon": "1.5", "seed": "7", "evaluation": "true", "public_data": ""})
    assert read == RequestedSpec(preset="auto", epsilon=1.5, seed=7)
