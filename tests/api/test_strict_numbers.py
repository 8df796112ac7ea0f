"""Numbers of budgets and training requests, wherever they come in: a number, or a problem that names the member."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from api_builders import NUM_RECORDS, description, send_images, training
from fastapi.routing import APIRoute
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.testclient import TestClient

from api.deps import Services
from api.http.strictness import StrictRoute
from api.main import create_app
from api.pages.views.planning import read_form
from api.schemas.datasets import DatasetRequest
from datalens_service.data.privacy_units import UnitDeclaration
from datalens_service.errors import InvalidSpec
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.services.dataset_declaration import DatasetForm
from datalens_service.settings import Settings
from datalens_service.store.tables import DatasetRow

JSON = {"Content-Type": "application/json"}
NUMBERS = st.floats(0.01, 1, exclude_min=True) | st.integers(1, 9)
# What a lax reader would take for one.
LIKE_NUMBERS = (
    st.booleans() | NUMBERS.map(str) | NUMBERS.map(lambda number: [number]) | st.sampled_from(["1_0", " 1", "١", "1e0"])
)
ON_ONE_SERVICE = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60
)
MEMBERS = [
    "epsilon",
    "delta",
    "seed",
    "synthetic_images",
    "evaluation/epochs",
    "evaluation/enabled",
    "method/clip_norm",
]


def placed(dataset_id: str, member: str, value: Any) -> dict[str, Any]:
    """A training request with `value` at `member` of its spec."""
    body = training(dataset_id, method={"name": "moments"}, evaluation={})
    *groups, name = member.split("/")
    inner = body["spec"]
    for group in groups:
        inner = inner[group]
    inner[name] = value
    return body


def app() -> Any:
    return create_app(Settings(data_dir=Path("never-opened")))


@ON_ONE_SERVICE
@given(st.sampled_from(MEMBERS), LIKE_NUMBERS)
def test_a_word_or_a_flag_is_no_number(client: TestClient, dataset_id: str, member: str, value: Any) -> None:
    if member == "evaluation/enabled" and isinstance(value, bool):
        return
    for path in ("/v1/plans", "/v1/jobs"):
        reply = client.post(path, json=placed(dataset_id, member, value))
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input")
        assert reply.json()["errors"][0]["pointer"] == f"#/spec/{member}"
    assert client.get("/v1/jobs").json()["items"] == []


@ON_ONE_SERVICE
@given(NUMBERS)
def test_a_number_stays_one(client: TestClient, dataset_id: str, number: float) -> None:
    reply = client.post("/v1/plans", json=training(dataset_id, epsilon=number))
    assert reply.status_code in (200, 422)
    if reply.status_code == 200:
        assert reply.json()["cost"]["epsilon_limit"] == number
    else:
        assert reply.json()["code"] == "epsilon-infeasible"


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


def test_operations_that_take_json_are_known() -> None:
    assert len(json_operations()) >= 10


def test_every_operation_refuses_equal_members(client: TestClient) -> None:
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
    lax = [route.path for route in routes(app()) if route.body_field is not None and not isinstance(route, StrictRoute)]
    assert lax == []


def routes(application: Any) -> list[APIRoute]:
    routes_with_handlers: list[APIRoute] = []
    waiting = list(application.routes)
    while waiting:
        route = waiting.pop()
        if isinstance(route, APIRoute):
            routes_with_handlers.append(route)
        else:
            router = getattr(route, "original_router", None)
            waiting += list(router.routes) if router is not None else []
    return routes_with_handlers


def test_routes_with_bodies_are_seen() -> None:
    assert sum(route.body_field is not None for route in routes(app())) >= 8


def models() -> Iterator[type[BaseModel]]:
    """Every model that a client fills in."""
    waiting: list[Any] = [DatasetForm, DatasetRequest, UnitDeclaration]
    waiting += [route.body_field.field_info.annotation for route in routes(app()) if route.body_field is not None]
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


def test_the_models_of_requests_are_seen() -> None:
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
    ("epsilon", "1O"),
    ("epsilon", "١٠"),
    ("epsilon", "0x10"),
    ("epsilon", "1e999"),
    ("epsilon", "NaN"),
    ("epsilon", "true"),
    ("delta", "1e-0_6"),
    ("records_per_unit", "1_0"),
    ("records_per_unit", "10.0"),
    ("records_per_unit", "True"),
    ("public_test", "1"),
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


def test_a_declaration_as_json_is_strict(client: TestClient) -> None:
    for value in [True, "10", "1_0"]:
        for member in ["epsilon", "records_per_unit"]:
            reply = client.post("/v1/datasets", json={"upload_id": "upl_1", member: value})
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), value
            assert reply.json()["errors"][0]["pointer"] == f"#/{member}"


def test_a_raise_is_strict(client: TestClient, dataset_id: str) -> None:
    reason = "agreed with the hospital"
    for epsilon in (True, "20", "2_0"):
        body = {"epsilon": epsilon, "reason": reason}
        reply = client.post(f"/v1/datasets/{dataset_id}/privacy:raise", json=body)
        assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "#/epsilon")
    twice = b'{"epsilon": 20, "reason": "agreed with the hospital", "epsilon": 90}'
    reply = client.post(f"/v1/datasets/{dataset_id}/privacy:raise", content=twice, headers=JSON)
    assert (reply.status_code, reply.json()["errors"][0]["pointer"]) == (422, "#/epsilon")
    assert client.get(f"/v1/datasets/{dataset_id}/privacy").json()["epsilon_limit"] == 10


def test_queries_take_digits_only(client: TestClient) -> None:
    for text in ["1_0", "%201", "1.0", "+1", "١"]:
        for path in ["/v1/jobs?limit={}", "/v1/audit?after={}"]:
            reply = client.get(path.format(text))
            assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), text
            assert reply.json()["errors"][0]["detail"] == "Must be a whole number."


def test_the_length_of_an_upload_is_digits(client: TestClient) -> None:
    headers = {"Tus-Resumable": "1.0.0", "Upload-Length": "1_0"}
    reply = client.post("/v1/uploads", headers=headers)
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input")


@pytest.mark.parametrize("text", ["1_0", " 1", "inf", "١"])
def test_the_form_of_a_plan_takes_plain_notation_only(text: str) -> None:
    for field in ("epsilon", "seed", "synthetic_images"):
        with pytest.raises(InvalidSpec, match=field):
            read_form({"epsilon": "1", field: text})
    with pytest.raises(InvalidSpec, match="evaluation"):
        read_form({"epsilon": "1", "evaluate": "yes"})
    read = read_form({"epsilon": "1.5", "seed": "7", "evaluate": "true", "public_data": ""})
    assert read == RequestedSpec(preset="auto", epsilon=1.5, seed=7)
