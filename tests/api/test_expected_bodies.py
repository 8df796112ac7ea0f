"""Whoever sends a body that an operation cannot read learns what came, what is taken, and how curl sends it.

No operation and no page ignores a query parameter: what it does not take is refused, with what was meant.
"""

import functools
import json
import re
import shlex
from typing import Any, NamedTuple

import pytest
from api_builders import application, description, routes
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from datalens_service.adapters.openid_provider import CALLBACK
from datalens_service.api import released_jobs
from datalens_service.api.http.strictness import list_parameters

HEADERS = {"Tus-Resumable": "1.0.0", "Upload-Offset": "0"}


class Operation(NamedTuple):
    """An operation that takes a body."""

    method: str
    path: str
    media: tuple[str, ...]
    optional: bool


@functools.cache
def operations() -> list[Operation]:
    found = []
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody")
            if body is not None:
                found.append(Operation(method, path, tuple(body["content"]), not body.get("required", False)))
    return found


@pytest.fixture
def anything_is_there(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Whose object it is comes before what the body is; here it is always the caller's."""
    monkeypatch.setattr("datalens_service.api.deps.tenants.check_owned", lambda *_: None)
    client.app.dependency_overrides[released_jobs.labelling] = lambda: None
    return client


def refused(client: TestClient, operation: Operation, content: bytes, media: str | None) -> str:
    headers = {**HEADERS, **({} if media is None else {"Content-Type": media})}
    address = re.sub(r"\{\w+\}", "x", operation.path)
    reply = client.request(operation.method, address, content=content, headers=headers)
    problem = reply.json()
    assert reply.status_code in (415, 422), (operation, problem)
    assert problem["code"] in ("unsupported-media-type", "invalid-input")
    assert b"x-ray" not in content or "x-ray" not in reply.text
    assert all(error["detail"] == problem["detail"] for error in problem.get("errors", ()))
    for taken in operation.media:
        assert f"({taken}; curl: -" in problem["detail"], (operation, problem)
    return str(problem["detail"])


JSON, FORM = "application/json", "multipart/form-data; boundary=x"
NO_OBJECT, NO_JSON = "The body is JSON, but no object.", "The body is not valid JSON."


@pytest.mark.parametrize(
    ("content", "media", "came"),
    [
        *((b"x-ray", f"text/plain{more}", "The body came as text/plain.") for more in ("", "; charset=utf-8")),
        *((b"x-ray", media, "The body came without a usable Content-Type.") for media in (None, "<x-ray>")),
        *((content, JSON, NO_JSON) for content in (b"{'x-ray': 1}", b"{", b"\xff\xfe", b"[" * 100_000)),
        *((content, JSON, NO_OBJECT) for content in (b'["x-ray"]', b'"x-ray"', b"7")),
        (b"--x\r\ngarbage", FORM, "The form is malformed or cut off."),
        (b"--x--\r\n", FORM, "The form has no file in a part named file."),
        (b"", JSON, "The request has no body."),
        (b"", FORM, "The request has no body."),
    ],
    ids=lambda value: str(value)[:30],
)
def test_bodies_that_cannot_be_read(
    anything_is_there: TestClient, content: bytes, media: str | None, came: str
) -> None:
    assert len(operations()) >= 15
    kind = media.partition(";")[0] if media in (JSON, FORM) else None
    for operation in operations():
        # What may be left out may be empty.
        if (kind is None or kind in operation.media) and (content or not operation.optional):
            assert refused(anything_is_there, operation, content, media).startswith(f"{came} This operation takes ")


def test_examples_are_what_curl_would_send(anything_is_there: TestClient) -> None:
    for operation in operations():
        detail = refused(anything_is_there, operation, b"x-ray", "text/plain")
        for options in re.findall(r"curl: (.*?)\)(?:,|\.$)", detail):
            words = shlex.split(options)
            assert words[0] in ("--json", "-F", "-H")
            if words[0] == "--json":
                assert isinstance(json.loads(words[1]), dict)


ROUTES = list(routes(application()))
STRICT = [route for route in ROUTES if route.path != CALLBACK]


def called(route: APIRoute) -> str:
    return f"{min(route.methods)} {route.path}"


def ask(client: TestClient, route: APIRoute, **query: str) -> Any:
    address = re.sub(r"\{\w+\}", "x", route.path)
    accepted = "application/json" if route.include_in_schema else "text/html"
    headers = {"Accept": accepted}
    return client.request(min(route.methods), address, params=query, headers=headers, follow_redirects=False)


def test_unknown_parameters_are_refused(client: TestClient) -> None:
    assert len(STRICT) >= 80
    assert sum(bool(list_parameters(route)) for route in STRICT) >= 20
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
