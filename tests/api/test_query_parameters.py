"""No operation and no page ignores a query parameter: what it does not take is refused, with what was meant."""

import re
from pathlib import Path
from typing import Any

from api_builders import routes
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from api.http.strictness import list_parameters
from api.main import create_app
from datalens_service.gateways.openid_provider import CALLBACK
from datalens_service.settings import Settings

ROUTES = list(routes(create_app(Settings(data_dir=Path("never-opened")))))
STRICT = [route for route in ROUTES if route.path != CALLBACK]


def called(route: APIRoute) -> str:
    return f"{min(route.methods)} {route.path}"


def ask(client: TestClient, route: APIRoute, **query: str) -> Any:
    address = re.sub(r"\{\w+\}", "x", route.path)
    return client.request(min(route.methods), address, params=query, follow_redirects=False)


def test_unknown_parameters_are_refused(client: TestClient) -> None:
    for route in STRICT:
        reply = ask(client, route, colour="red")
        assert reply.status_code == 422, called(route)
        assert "red" not in reply.text
        known = list_parameters(route)
        hint = f"Known here: {', '.join(known)}." if known else "None are known here; leave it out."
        sentence = f"There is no parameter of this name. {hint}"
        if not route.include_in_schema:
            assert f"colour in the address: {sentence}" in reply.text, called(route)
        elif "HEAD" not in route.methods:
            [error] = reply.json()["errors"]
            assert reply.json()["code"] == "invalid-input"
            assert error == {"in": "query", "pointer": "#/colour", "code": "unknown_parameter", "detail": sentence}, (
                called(route)
            )


def test_misspelt_parameters_are_refused_with_what_was_meant(client: TestClient) -> None:
    for route in STRICT:
        for name in list_parameters(route):
            for misspelt in (f"{name}{name[-1]}", name.title()):
                reply = ask(client, route, **{misspelt: "1"})
                assert reply.status_code == 422, called(route)
                assert f"Did you mean {name}?" in reply.text, called(route)


def test_parameters_that_are_declared_are_known(client: TestClient) -> None:
    for route in ROUTES:
        for name in list_parameters(route):
            assert "There is no parameter of this name" not in ask(client, route, **{name: "1"}).text, called(route)


def test_every_route_and_its_parameters_are_seen() -> None:
    assert len(ROUTES) >= 80
    assert sum(bool(list_parameters(route)) for route in ROUTES) >= 20
    assert {"after", "limit", "search"} <= set(
        next(list_parameters(route) for route in ROUTES if route.operation_id == "listJobs")
    )


def test_the_first_of_several_is_in_the_sentence(client: TestClient) -> None:
    problem = client.get("/v1/jobs?limitt=5&stat=queued").json()
    assert problem["detail"] == (
        "query #/limitt: There is no parameter of this name. Did you mean limit? 1 more in errors."
    )
    assert [error["pointer"] for error in problem["errors"]] == ["#/limitt", "#/stat"]


def test_providers_may_add_parameters_to_their_answer(client: TestClient) -> None:
    """OAuth asks to ignore those that are not known (RFC 6749, 4.1.2)."""
    reply = client.get(CALLBACK, params={"code": "c", "state": "s", "session_state": "theirs"})
    assert reply.status_code == 404
    assert "no single sign-on" in reply.text


def test_every_operation_says_that_it_refuses(client: TestClient) -> None:
    described = client.get("/openapi.json").json()
    for path, methods in described["paths"].items():
        for operation in methods.values():
            examples = operation["responses"]["422"]["content"]["application/problem+json"]["examples"]
            assert "invalid-input" in examples, path
