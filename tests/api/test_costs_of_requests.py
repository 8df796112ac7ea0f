"""What a request costs: statements of the database, and prices that are not computed twice."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api_builders import bearer, send_images, training
from fastapi.routing import APIRoute
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from datalens_service.adapters import startup
from datalens_service.api.deps import Services
from datalens_service.base.wording import Voice, spoken_to
from datalens_service.data.dataset import Schema
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.services import pricing
from datalens_service.services.pricing import Prices
from datalens_service.spec import TrainingSpec

SCHEMA = Schema(channels=1, height=8, width=8, class_names=("0", "1"), num_units=2000)
MOST = {"POST /v1/plans": 5, "GET /v1/jobs/{id}": 6, "GET /v1/jobs": 5, "GET /v1/datasets": 6}
"""Most statements of each request; a job that waits takes two more than one that has ended: who could take it."""


@contextmanager
def counted() -> Iterator[list[str]]:
    """The statements of requests within the block."""
    statements = list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if threading.current_thread().name.startswith("AnyIO worker"):
            statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_requests_that_are_sent_all_the_time_take_few_statements(client: TestClient, dataset_id: str) -> None:
    job_id = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    taken = {}
    for name in MOST:
        method, _, path = name.partition(" ")
        body = training(dataset_id) if method == "POST" else None
        with counted() as statements:
            assert client.request(method, path.format(id=job_id), json=body).status_code == 200
        taken[name] = len(statements)
    assert all(taken[name] <= most for name, most in MOST.items()), taken


def test_requests_that_are_sent_all_the_time_try_few_routes(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, matches = list[str](), APIRoute.matches
    monkeypatch.setattr(APIRoute, "matches", lambda route, scope: tried.append(route.path) or matches(route, scope))
    counts = {}
    for path in ("/livez", "/v1/jobs/job_nobody", "/v1/jobs"):
        client.get(path)
        counts[path] = len(tried)
        tried.clear()
    # Each is looked for twice: in the application, and in its router.
    assert all(0 < count <= 12 for count in counts.values()), counts


def test_a_folder_that_has_several_roles_is_written_to_once(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[Path]()
    monkeypatch.setattr(startup, "check_writable", lambda folder, _name: written.append(folder))
    startup.check_disks(services.settings)
    assert len(written) == len(set(written)) >= 1


@pytest.fixture
def priced(monkeypatch: pytest.MonkeyPatch) -> list[TrainingSpec]:
    """Specs that the accountant was asked for."""
    asked, plan = list[TrainingSpec](), TrainingSpec.plan

    def note(spec: TrainingSpec, schema: Schema) -> Any:
        asked.append(spec)
        return plan(spec, schema)

    monkeypatch.setattr(TrainingSpec, "plan", note)
    return asked


def test_a_plan_of_the_same_spec_and_schema_asks_the_accountant_once(
    client: TestClient, dataset_id: str, priced: list[TrainingSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreseen, expect = list[TrainingSpec](), pricing.expect
    monkeypatch.setattr(pricing, "expect", lambda spec, *rest: foreseen.append(spec) or expect(spec, *rest))
    answers = [client.post("/v1/plans", json=training(dataset_id)).json() for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
    assert (len(priced), len(foreseen)) == (1, 1)
    client.post("/v1/jobs", json=training(dataset_id))
    assert len(priced) == 1
    # The price is remembered, the account is not.
    after = client.post("/v1/plans", json=training(dataset_id)).json()
    assert after["budget"]["epsilon_remaining"] < answers[0]["budget"]["epsilon_remaining"]
    assert client.post("/v1/plans", json=training(dataset_id, epsilon=2.0)).json()["cost"]["epsilon_limit"] == 2.0
    assert len(priced) == 2


def test_another_schema_delta_or_service_has_a_price_of_its_own(priced: list[TrainingSpec]) -> None:
    spec, remembered = RequestedSpec.model_validate({"method": "moments", "epsilon": 1.0}), Prices()
    for schema, delta in ((SCHEMA, 1e-5), (SCHEMA, 1e-6), (SCHEMA.model_copy(update={"num_units": 900}), 1e-5)):
        assert remembered.price(spec, schema, delta) == Prices().price(spec, schema, delta)
    assert len(priced) == 6


def test_a_member_that_was_named_is_told_from_one_that_was_left_out() -> None:
    """Models are equal then, but a method fills in what was left out."""
    left_out = RequestedSpec.model_validate({"method": {"name": "dp_sgd"}, "epsilon": 1.0})
    assert left_out.method is not None
    named = RequestedSpec.model_validate({"method": left_out.method.model_dump(mode="json"), "epsilon": 1.0})
    schema, remembered = SCHEMA.model_copy(update={"num_units": 60_000, "height": 28, "width": 28}), Prices()
    assert named == left_out
    assert remembered.price(left_out, schema, 1e-5).spec != remembered.price(named, schema, 1e-5).spec


def test_each_reader_is_told_in_the_words_of_their_interface(services: Services) -> None:
    spec = TrainingSpec.model_validate({"method": "moments", "epsilon": 0.01})
    told = {}
    for voice in (Voice.REST, Voice.PAGE, Voice.REST):
        with spoken_to(voice):
            told[voice] = services.prices.foresee(spec, SCHEMA)[0].warning
    assert told[Voice.REST] != told[Voice.PAGE]


def test_a_refused_key_is_not_in_flight_for_ever(client: TestClient, services: Services) -> None:
    key = bearer(client)
    assert client.get("/v1/jobs/job_nobody", headers=key).status_code == 404
    assert send_images(client).status_code == 201
    assert not services.limits._in_flight
