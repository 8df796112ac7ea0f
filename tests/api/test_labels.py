"""Names, tags and notes: for finding things again, without any effect on them."""

import html
import json
import re
from typing import Any

import pytest
from api_builders import training
from starlette.testclient import TestClient

from api.security.browser_sessions import FORM_TOKEN_HEADER
from datalens_service import Client
from datalens_service.client import requests

LABELS: dict[str, Any] = {"name": "For the board", "tags": ["final", "2026", "final", "é"], "notes": "Two\nlines."}


@pytest.fixture
def job_id(client: TestClient, dataset_id: str) -> str:
    return str(client.post("/v1/jobs", json=training(dataset_id)).json()["id"])


def labels_of(item: dict[str, Any]) -> dict[str, Any]:
    return {name: item[name] for name in ("name", "tags", "notes")}


def test_labels_are_kept_and_change_nothing_else(client: TestClient, dataset_id: str, job_id: str) -> None:
    for kind in ["jobs", "datasets"]:
        path = f"/v1/{kind}/{job_id if kind == 'jobs' else dataset_id}"
        before = client.get(path).json()
        changed = client.patch(path, json=LABELS)
        assert changed.status_code == 200, changed.text
        assert labels_of(changed.json()) == LABELS | {"tags": ["2026", "final", "é"]}
        assert client.get(path).json() == before | labels_of(changed.json())
        client.patch(path, json={"tags": []})
        assert labels_of(client.get(path).json()) == LABELS | {"tags": []}


def test_labels_have_limits(client: TestClient, job_id: str) -> None:
    for refused in [
        {"tags": ["a,b"]},
        {"tags": [""]},
        {"tags": ["x" * 41]},
        {"tags": [str(number) for number in range(21)]},
        {"notes": "x" * 2001},
        {"name": "x" * 201},
        {"notes": "\x00"},
        {"epsilon": 3},
    ]:
        before = labels_of(client.get(f"/v1/jobs/{job_id}").json())
        answer = client.patch(f"/v1/jobs/{job_id}", json=refused)
        assert answer.status_code == 422, refused
        assert labels_of(client.get(f"/v1/jobs/{job_id}").json()) == before


def test_a_dataset_keeps_a_name(client: TestClient, dataset_id: str) -> None:
    assert client.patch(f"/v1/datasets/{dataset_id}", json={"name": " "}).status_code == 422
    assert client.patch("/v1/datasets/ds_none", json={"name": "x"}).status_code == 404


def test_jobs_are_looked_up_by_name_and_tag(client: TestClient, job_id: str) -> None:
    client.patch(f"/v1/jobs/{job_id}", json=LABELS)
    for search, matches in [
        ("board", True),
        ("BOARD", True),
        ("final", True),
        ("é", True),
        ("fin", False),
        ("%", False),
        ("other", False),
    ]:
        listed = client.get("/v1/jobs", params={"search": search}).json()["items"]
        assert [item["id"] for item in listed] == [job_id] * matches, search


def test_a_job_is_called_by_what_was_asked_for_until_it_is_named(client: TestClient, dataset_id: str) -> None:
    job = client.post("/v1/jobs", json={"dataset_id": dataset_id, "spec": {"preset": "auto", "epsilon": 1}}).json()
    assert labels_of(job) == {"name": "Made to look at, ε 1", "tags": [], "notes": ""}
    assert client.get("/v1/jobs", params={"search": "to look"}).json()["items"][0]["id"] == job["id"]
    clone = client.post(f"/v1/jobs/{job['id']}:clone", json={"epsilon": 0.5, "accept_low_utility": True}).json()
    assert clone["name"].endswith(", ε 0.5")
    client.post("/sign-in", data={"key": client.headers["Authorization"].removeprefix("Bearer ")})
    listed = client.get("/jobs").text
    assert "Made to look at, ε 1" in listed
    client.patch(f"/v1/jobs/{job['id']}", json={"name": ""})
    assert client.get(f"/v1/jobs/{job['id']}").json()["name"] == ""


def test_a_job_of_the_page_is_called_by_what_was_chosen(client: TestClient, dataset_id: str) -> None:
    home = client.post("/sign-in", data={"key": client.headers.pop("Authorization").removeprefix("Bearer ")}).text
    client.headers[FORM_TOKEN_HEADER] = re.search(r'name="form-token" content="([\w-]+)"', home)[1]
    form = {"preset": "teach", "epsilon": "1", "seed": "0", "synthetic_images": "40", "method": ""}
    page = client.post(f"/datasets/{dataset_id}/plan", json=form).text
    body = json.loads(html.unescape(re.search(r'data-body="([^"]+)"', page)[1]))
    assert client.post("/v1/jobs", json=body).json()["name"] == "Made to teach, ε 1"


def test_notes_do_not_go_with_a_clone(client: TestClient, job_id: str) -> None:
    client.patch(f"/v1/jobs/{job_id}", json={"notes": "only here"})
    assert "only here" not in client.post(f"/v1/jobs/{job_id}:clone").text


def test_pages_show_and_offer_labels(client: TestClient, dataset_id: str, job_id: str) -> None:
    client.patch(f"/v1/jobs/{job_id}", json={**LABELS, "notes": "<b>bold</b>"})
    client.post("/sign-in", data={"key": client.headers["Authorization"].removeprefix("Bearer ")})
    page = client.get(f"/jobs/{job_id}").text
    assert "For the board" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert f'data-send="PATCH /v1/jobs/{job_id}"' in page
    assert "For the board" in client.get("/jobs?search=final").text
    assert f'data-send="PATCH /v1/datasets/{dataset_id}"' in client.get(f"/datasets/{dataset_id}").text


def test_the_client_sends_what_was_given_alone() -> None:
    assert requests.encode_labels("x", None, None) == {"json": {"name": "x"}}
    assert requests.encode_labels(None, ("a", "b"), "n") == {"json": {"tags": ["a", "b"], "notes": "n"}}
    assert {"update_job", "update_dataset"} <= set(dir(Client))
