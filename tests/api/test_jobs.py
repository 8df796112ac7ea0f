"""Plans and jobs over HTTP: price, reservation, progress, cancellation.

Names, tags and notes: for finding things again, without any effect on them.
"""

import html
import json
import re
from typing import Any

import pytest
from api_builders import browser, claimed, training
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from datalens_service import Client
from datalens_service.api.deps import Services
from datalens_service.api.security.browser_sessions import FORM_TOKEN_HEADER
from datalens_service.base.errors import InfeasiblePlan
from datalens_service.client import requests
from datalens_service.data.dataset import Schema
from datalens_service.privacy.accounting import epsilon_of_ledger_units, mu_of_ledger_units
from datalens_service.spec import TrainingSpec
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger import ledger


def test_plan_prices_what_the_job_will_charge(client: TestClient, dataset_id: str) -> None:
    dataset = client.get(f"/v1/datasets/{dataset_id}").json()
    plan = client.post("/v1/plans", json=training(dataset_id, epsilon=2)).json()
    schema = Schema.model_validate(dataset["schema"])
    spec = TrainingSpec(method="moments", epsilon=2, delta=dataset["privacy"]["delta"])
    assert all(seconds >= 0 for seconds in plan["cost"]["phase_seconds"].values())
    assert {**plan["cost"], "phase_seconds": {}} == spec.price(schema).model_dump(mode="json")
    assert plan["spec"] == spec.model_dump(mode="json")
    assert plan["fits"] is True
    assert plan["cost"]["epsilon_at_plan"] <= 2
    assert client.get(f"/v1/datasets/{dataset_id}").json()["privacy"] == dataset["privacy"] == plan["budget"]
    client.post("/v1/jobs", json=training(dataset_id, epsilon=2))
    assert client.get(f"/v1/datasets/{dataset_id}").json()["privacy"] == plan["budget_after"]


def test_below_the_limit_of_use_no_budget_is_spent_by_accident(client: TestClient, dataset_id: str) -> None:
    noise = {"dataset_id": dataset_id, "spec": {"method": "moments", "epsilon": 0.25}}
    before = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]
    planned = client.post("/v1/plans", json=noise)
    refused = client.post("/v1/jobs", json=noise)
    problem = refused.json()
    assert (refused.status_code, problem["code"], problem["type"][-21:]) == (
        422,
        "low-utility",
        "/problems/low-utility",
    )
    assert planned.json()["expectation"]["warning"] in problem["detail"]
    assert "accept_low_utility" in problem["detail"]
    assert client.get(f"/v1/datasets/{dataset_id}").json()["privacy"] == before
    assert client.get("/v1/jobs").json()["items"] == []
    accepted = client.post("/v1/jobs", json={**noise, "accept_low_utility": True})
    assert accepted.status_code == 202
    clone = f"/v1/jobs/{accepted.json()['id']}:clone"
    assert client.post(clone).json()["code"] == "low-utility"
    assert client.post(clone, json={"accept_low_utility": True}).status_code == 202


def test_job_is_accepted_with_its_budget_reserved(client: TestClient, dataset_id: str) -> None:
    reply = client.post("/v1/jobs", json=training(dataset_id, seed=3))
    job = reply.json()
    assert reply.status_code == 202
    assert reply.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert int(reply.headers["Retry-After"]) > 0
    assert (job["state"], job["phase"], job["attempts"], job["error"]) == ("queued", None, 0, None)
    delta = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]["delta"]
    guarantee = job["cost"]["guarantee"]
    assert job["privacy"] == {"epsilon_spent": 0, "epsilon_limit": 1, "delta": delta, "mu": 0, "guarantee": guarantee}
    assert guarantee.startswith(
        "The guarantee of this job protects each training image by itself, with its label: ε = "
    )
    assert (job["spec"]["seed"], job["spec"]["delta"], job["spec"]["method"]["name"]) == (3, delta, "moments")
    base = f"/v1/jobs/{job['id']}"
    assert job["links"] == {
        "self": base,
        "events": f"{base}/events",
        "cancel": f"{base}:cancel",
        "pause": f"{base}:pause",
        "resume": None,
        "clone": f"{base}:clone",
        "files": f"{base}/artifacts",
        "report": None,
        "samples": None,
        "synthetic": None,
        "generator": None,
        "bundle": None,
    }
    assert client.get(base).json() == job


def test_spending_is_shown_rounded_up(client: TestClient, services: Services, dataset_id: str) -> None:
    job = client.post("/v1/jobs", json=training(dataset_id)).json()
    lease = claimed(services, job["id"])
    units = job["cost"]["units"] // 3
    with services.database.transaction() as session:
        ledger.charge(session, job["id"], lease.token, 0, "test", units)
    leases.progress(services.database, lease, "training", 1, 3)
    reply = client.get(f"/v1/jobs/{job['id']}")
    shown = reply.json()
    exact = epsilon_of_ledger_units(units, job["cost"]["delta"])
    assert exact <= shown["privacy"]["epsilon_spent"] < exact + 1e-3
    assert mu_of_ledger_units(units) <= shown["privacy"]["mu"] < mu_of_ledger_units(units) + 1e-5
    assert (shown["state"], shown["phase"]) == ("running", "training")
    # One look at the phase says nothing about its pace.
    assert shown["progress"] == {
        "phase": "training",
        "value": 1,
        "maximum": 3,
        "eta_seconds": shown["progress"]["eta_seconds"],
    }
    assert "Retry-After" in reply.headers
    account = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]
    assert account["epsilon_spent"] == shown["privacy"]["epsilon_spent"]


def test_failed_job_shows_its_problem(client: TestClient, services: Services, dataset_id: str) -> None:
    job_id = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    lease = claimed(services, job_id)
    leases.finish(services.database, lease, JobState.FAILED, leases.WORKER_LOST)
    reply = client.get(f"/v1/jobs/{job_id}")
    error = reply.json()["error"]
    assert (error["type"], error["code"]) == ("/problems/worker-lost", "worker-lost")
    assert client.get(error["type"]).status_code == 200
    assert "Retry-After" not in reply.headers
    assert reply.json()["links"]["cancel"] is None


def test_cancel_gives_the_reservation_back_or_is_a_request(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    waiting, running = (client.post("/v1/jobs", json=training(dataset_id)).json() for _ in range(2))
    reply = client.post(f"/v1/jobs/{waiting['id']}:cancel")
    assert (reply.status_code, reply.json()["state"]) == (202, "cancelled")
    reserved = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]["units"]["reserved"]
    assert reserved == running["cost"]["units"]
    again = client.post(f"/v1/jobs/{waiting['id']}:cancel")
    assert (again.status_code, again.json()["code"]) == (409, "state-conflict")
    claimed(services, running["id"])
    asked = client.post(f"/v1/jobs/{running['id']}:cancel").json()
    assert (asked["state"], asked["cancel_requested"]) == ("running", True)


def test_priority_decides_which_job_is_next_and_changes_no_price(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    bodies = [{**training(dataset_id), "priority": priority} for priority in (0, 5, 3)]
    prices = [client.post("/v1/plans", json=body).json()["cost"] for body in bodies]
    low, usual, middle = (client.post("/v1/jobs", json=body).json() for body in bodies)
    assert [job["priority"] for job in (low, usual, middle)] == [0, 5, 3]
    assert prices == [low["cost"]] * 3
    assert leases.next_queued(services.database, 3) == (usual["id"], middle["id"], low["id"])
    copies = [client.post(f"/v1/jobs/{low['id']}:clone", json=changes).json() for changes in ({}, {"priority": 4})]
    assert [copy["priority"] for copy in copies] == [0, 4]
    assert low["spec"] == copies[1]["spec"]


def test_no_job_pushes_in_front_unless_the_operator_allows_it(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    urgent = {**training(dataset_id), "priority": 9}
    refused = client.post("/v1/jobs", json=urgent)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-input")
    assert "from 0 to 5" in refused.json()["detail"]
    object.__setattr__(services, "settings", services.settings.model_copy(update={"highest_priority": 9}))
    assert client.post("/v1/jobs", json=urgent).json()["priority"] == 9
    assert client.post("/v1/jobs", json={**urgent, "priority": 10}).status_code == 422


def test_list_of_jobs_reads_no_plan_of_releases(client: TestClient, dataset_id: str) -> None:
    client.post("/v1/jobs", json=training(dataset_id))
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert client.get("/v1/jobs").json()["items"]
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert any("FROM jobs" in statement for statement in statements)
    assert not any("jobs.plan" in statement for statement in statements)


def test_delta_of_the_account_may_be_named(client: TestClient, dataset_id: str) -> None:
    delta = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]["delta"]
    assert client.post("/v1/jobs", json=training(dataset_id, delta=delta)).status_code == 202


def test_list_is_newest_first(client: TestClient, dataset_id: str) -> None:
    ids = [client.post("/v1/jobs", json=training(dataset_id)).json()["id"] for _ in range(3)]
    page = client.get("/v1/jobs", params={"limit": 2}).json()
    rest = client.get("/v1/jobs", params={"after": page["next_cursor"]}).json()
    assert [item["id"] for item in page["items"] + rest["items"]] == ids[::-1]
    assert page["items"][0] == client.get(f"/v1/jobs/{ids[-1]}").json()


def test_refusal_of_the_library_is_passed_on(client: TestClient, dataset_id: str) -> None:
    reply = client.post("/v1/plans", json=training(dataset_id, epsilon=1e-9))
    assert (reply.status_code, reply.json()["code"]) == (422, InfeasiblePlan.slug)


def test_problems_that_workers_leave_have_a_type() -> None:
    from datalens_service.api.problems.problem_types import PROBLEM_TYPES
    from datalens_service.jobs import failures

    for left in (failures.describe_problem(MemoryError()), failures.INTERNAL, leases.WORKER_LOST):
        assert PROBLEM_TYPES[left["type"]].title == left["title"]


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


def test_labels_have_limits(client: TestClient, dataset_id: str, job_id: str) -> None:
    assert client.patch(f"/v1/datasets/{dataset_id}", json={"name": " "}).status_code == 422, "it keeps a name"
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
    assert labels_of(job) == {"name": "Best-looking, ε 1", "tags": [], "notes": ""}
    assert client.get("/v1/jobs", params={"search": "best-look"}).json()["items"][0]["id"] == job["id"]
    clone = client.post(f"/v1/jobs/{job['id']}:clone", json={"epsilon": 0.5, "accept_low_utility": True}).json()
    assert clone["name"].endswith(", ε 0.5")
    listed = browser(client).get("/jobs").text
    assert "Best-looking, ε 1" in listed
    client.patch(f"/v1/jobs/{job['id']}", json={"name": ""})
    assert client.get(f"/v1/jobs/{job['id']}").json()["name"] == ""


def test_a_job_of_the_page_is_called_by_what_was_chosen(client: TestClient, dataset_id: str) -> None:
    home = client.post("/sign-in", data={"key": client.headers.pop("Authorization").removeprefix("Bearer ")}).text
    client.headers[FORM_TOKEN_HEADER] = re.search(r'name="form-token" content="([\w-]+)"', home)[1]
    form = {"preset": "teach", "epsilon": "1", "seed": "0", "synthetic_images": "40", "method": ""}
    page = client.post(f"/datasets/{dataset_id}/plan", json=form).text
    body = json.loads(html.unescape(re.search(r'data-body="([^"]+)"', page)[1]))
    assert client.post("/v1/jobs", json=body).json()["name"] == "Best for training, ε 1"


def test_notes_do_not_go_with_a_clone(client: TestClient, job_id: str) -> None:
    client.patch(f"/v1/jobs/{job_id}", json={"notes": "only here"})
    assert "only here" not in client.post(f"/v1/jobs/{job_id}:clone").text


def test_pages_show_and_offer_labels(client: TestClient, dataset_id: str, job_id: str) -> None:
    client.patch(f"/v1/jobs/{job_id}", json={**LABELS, "notes": "<b>bold</b>"})
    visitor = browser(client)
    page = visitor.get(f"/jobs/{job_id}").text
    assert "For the board" in page
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert f'data-send="PATCH /v1/jobs/{job_id}"' in page
    assert "For the board" in visitor.get("/jobs?search=final").text
    assert f'data-send="PATCH /v1/datasets/{dataset_id}"' in visitor.get(f"/datasets/{dataset_id}").text


def test_the_client_sends_what_was_given_alone() -> None:
    assert requests.encode_labels("x", None, None) == {"json": {"name": "x"}}
    assert requests.encode_labels(None, ("a", "b"), "n") == {"json": {"tags": ["a", "b"], "notes": "n"}}
    assert {"update_job", "update_dataset"} <= set(dir(Client))
