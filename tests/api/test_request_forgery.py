"""What another site, another session or a hostile name makes of a signed-in browser and of the log: nothing."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from api_builders import npz, sign_in
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.api.security.browser_sessions import COOKIE, FORM_TOKEN_HEADER
from datalens_service.base.errors import Unauthorized
from datalens_service.store.access import browser_sessions, keys

SIGNING = ("/sign-in", "/sign-out")
"""Need no token; `test_sessions.py` has what protects them."""


def changing_routes(within: Any) -> Iterator[tuple[str, str]]:
    for route in within.routes:
        if (included := getattr(route, "original_router", None)) is not None:
            yield from changing_routes(included)
        if isinstance(route, APIRoute) and route.path not in SIGNING:
            yield from ((method, route.path) for method in route.methods - {"GET", "HEAD", "OPTIONS"})


ROUTES = sorted(changing_routes(create_app()))


def test_no_route_changes_anything_without_the_token_of_its_session(client: TestClient, services: Services) -> None:
    assert len(ROUTES) > 30
    plain = sign_in(client)
    client.follow_redirects = False
    other_session = browser_sessions.sign_in(services.database, plain).form_token
    for method, route in ROUTES:
        path = re.sub(r"\{\w+(:\w+)?\}", "x_1", route)
        for token in ({}, {FORM_TOKEN_HEADER: "0" * 64}, {FORM_TOKEN_HEADER: other_session}):
            for body in ({"json": {}}, {"data": {"confirm_classes": "true"}}, {"files": {"file": npz()}}):
                answer = client.request(method, path, headers=token, **body)
                # A page leads to the form; a request is refused.
                led = (answer.status_code, answer.headers.get("location", "").partition("?")[0]) == (303, "/sign-in")
                assert led or answer.status_code == 401, (method, route, answer.text)


def test_a_cookie_that_was_planted_becomes_no_session(client: TestClient, services: Services) -> None:
    plain = keys.create(services.database, "visitor")[1]
    del client.headers["Authorization"]
    planted = browser_sessions.sign_in(services.database, keys.create(services.database, "attacker")[1]).token
    client.follow_redirects = False
    answer = client.post("/sign-in", data={"key": plain}, headers={"Cookie": f"{COOKIE}={planted}"})
    assert answer.cookies[COOKIE] != planted
    with pytest.raises(Unauthorized):
        browser_sessions.resume(services.database, planted)


def test_answers_say_what_they_are_and_to_nobody_else(client: TestClient) -> None:
    for path in ["/v1/jobs", "/v1/nothing", "/", "/static/service.js", "/livez", "/metrics"]:
        answer = client.get(path, headers={"Origin": "https://elsewhere.example"})
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_nobody_writes_lines_or_control_characters_into_the_log(
    client: TestClient, capfd: pytest.CaptureFixture[str]
) -> None:
    forged = 'x\r\n{"event": "forged", "level": "info"}\x1b[31m\x9b\u2028'
    client.get("/v1/jobs/x%0d%0a%7B%22event%22:%22forged%22%7D%1b")
    client.get("/v1/jobs", params={"state": forged, "after": forged})
    client.get("/v1/jobs", headers={"User-Agent": "a\x1b[31m", "X-Request-ID": "forged", "X-Forwarded-For": "forged"})
    client.post("/v1/api-keys", json={"name": forged})
    client.post("/v1/datasets", files={"file": (forged, npz())}, data={"name": forged, "epsilon": forged})
    client.post("/v1/jobs", json={"dataset_id": forged, forged: 1})
    client.post("/sign-in", data={"key": forged, "next": forged})
    lines = [line for line in "".join(capfd.readouterr()).split("\n") if line]
    assert lines
    assert all(json.loads(line)["event"] != "forged" for line in lines)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", "".join(lines))
