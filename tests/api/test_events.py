"""Events of a job as a list and as a stream, and what pauses, resumes and repeats a job over HTTP."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_builders import claimed, training
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.store.access import browser_sessions, keys
from datalens_service.store.jobs import events, jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger import ledger
from datalens_service.store.schema.service_tables import BrowserSessionRow
from datalens_service.store.schema.tables import ApiKeyRow, JobRow

BEGINNING = datetime(2020, 1, 1, tzinfo=UTC)
STREAM = {"Accept": "text/event-stream"}


def submitted(client: TestClient, dataset_id: str, **spec: Any) -> dict[str, Any]:
    reply = client.post("/v1/jobs", json=training(dataset_id, **spec))
    assert reply.status_code == 202, reply.text
    found: dict[str, Any] = reply.json()
    return found


def finished(services: Services, job_id: str) -> None:
    """A job that spent a third, was cancelled, and told of it: created, started, progress, cancelled."""
    lease = claimed(services, job_id)
    with services.database.transaction() as session:
        ledger.charge(session, job_id, lease.token, 0, "test", jobs.get(services.database, job_id).reserved_units // 3)
    leases.progress(services.database, lease, "training", 1, 3)
    leases.finish(services.database, lease, JobState.CANCELLED)


def blocks(text: str) -> list[dict[str, str]]:
    """The events of a stream: comments and the retry time left out."""
    parts = [part.splitlines() for part in text.strip().split("\n\n")]
    return [dict(line.split(": ", 1) for line in part) for part in parts if part[0].startswith("id: ")]


def test_list_and_stream_tell_the_same(client: TestClient, services: Services, dataset_id: str) -> None:
    job = submitted(client, dataset_id)
    finished(services, job["id"])
    page = client.get(job["links"]["events"]).json()
    assert [item["type"] for item in page["items"]] == ["job.created", "job.started", "job.progress", "job.cancelled"]
    assert [item["id"] for item in page["items"]] == [1, 2, 3, 4]
    assert page["items"][0]["epsilon_spent"] == 0
    assert page["items"][3]["epsilon_spent"] == client.get(job["links"]["self"]).json()["privacy"]["epsilon_spent"] > 0
    reply = client.get(job["links"]["events"], headers=STREAM)
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert "retry: 3000" in reply.text
    sent = blocks(reply.text)
    assert [json.loads(block["data"]) for block in sent] == page["items"]
    assert [(int(block["id"]), block["event"]) for block in sent] == [
        (item["id"], item["type"]) for item in page["items"]
    ]


def test_list_comes_in_portions(client: TestClient, services: Services, dataset_id: str) -> None:
    job = submitted(client, dataset_id)
    finished(services, job["id"])
    first = client.get(job["links"]["events"], params={"limit": 3}).json()
    assert (len(first["items"]), first["has_more"], first["next_cursor"]) == (3, True, 3)
    rest = client.get(job["links"]["events"], params={"after": first["next_cursor"]}).json()
    assert ([item["id"] for item in rest["items"]], rest["has_more"], rest["next_cursor"]) == ([4], False, None)


def test_a_stream_that_was_cut_off_goes_on_behind_the_last_event(
    client: TestClient, services: Services, dataset_id: str
) -> None:
    job = submitted(client, dataset_id)
    finished(services, job["id"])
    reply = client.get(job["links"]["events"], headers={**STREAM, "Last-Event-ID": "2"})
    assert [int(block["id"]) for block in blocks(reply.text)] == [3, 4]


def test_a_stream_waits_for_what_comes(client: TestClient, services: Services, dataset_id: str) -> None:
    job = submitted(client, dataset_id)
    worker = threading.Thread(target=finished, args=(services, job["id"]))
    worker.start()
    reply = client.get(job["links"]["events"], headers=STREAM)
    worker.join()
    assert [int(block["id"]) for block in blocks(reply.text)] == [1, 2, 3, 4]


def test_a_stream_ends_with_the_service(client: TestClient, services: Services, dataset_id: str) -> None:
    job = submitted(client, dataset_id)
    services.stopping.set()
    assert client.get(job["links"]["events"], headers=STREAM).status_code == 200


def stream_during(
    client: TestClient,
    services: Services,
    job: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[], object],
) -> list[str]:
    """Events that a stream tells when something happens behind its first look for events, and then the job ends."""
    list_events = events.list_events

    def look(*arguments: Any, **options: Any) -> Any:
        found = list_events(*arguments, **options)
        happens()
        monkeypatch.setattr(events, "list_events", list_events)
        finished(services, job["id"])
        return found

    monkeypatch.setattr(events, "list_events", look)
    return [block["event"] for block in blocks(client.get(job["links"]["events"], headers=STREAM).text)]


@pytest.mark.parametrize("change", [{"revoked_at": BEGINNING}, {"expires_at": BEGINNING}])
def test_a_stream_ends_with_the_key_that_asked_for_it(
    client: TestClient, services: Services, dataset_id: str, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    def end_key() -> None:
        with services.database.transaction() as session:
            session.execute(update(ApiKeyRow).values(change))

    job = submitted(client, dataset_id)
    assert stream_during(client, services, job, monkeypatch, end_key) == ["job.created"]
    assert client.get(job["links"]["events"], headers=STREAM).status_code == 401


@pytest.mark.parametrize("end", ["signed out", "signed out everywhere", "key revoked", "unused", "goes on"])
def test_a_stream_of_a_browser_ends_with_its_session(
    client: TestClient, services: Services, dataset_id: str, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    key, plain = keys.create(services.database, "visitor")
    session = browser_sessions.sign_in(services.database, plain)

    def age() -> None:
        with services.database.transaction() as writing:
            writing.execute(update(BrowserSessionRow).values(expires_at=BEGINNING))

    ends: dict[str, Callable[[], object]] = {
        "signed out": lambda: browser_sessions.sign_out(services.database, session.token),
        "signed out everywhere": lambda: browser_sessions.sign_out_everywhere(services.database, key.id),
        "key revoked": lambda: keys.revoke(services.database, key.id),
        "unused": age,
        "goes on": lambda: None,
    }
    job = submitted(client, dataset_id)
    del client.headers["Authorization"]
    client.cookies.set("datalens-session", session.token)
    told = stream_during(client, services, job, monkeypatch, ends[end])
    assert told[:1] == ["job.created"]
    assert (len(told) == 1) == (end != "goes on")


def test_events_of_nobody_are_not_found(client: TestClient) -> None:
    for headers in ({}, STREAM):
        assert client.get("/v1/jobs/job_of_nobody/events", headers=headers).status_code == 404


def test_events_hold_public_numbers_and_nothing_else(client: TestClient, services: Services, dataset_id: str) -> None:
    job = submitted(client, dataset_id)
    finished(services, job["id"])
    members = {"id", "type", "state", "phase", "value", "maximum", "epsilon_spent", "delta", "created_at"}
    for item in client.get(job["links"]["events"]).json()["items"]:
        assert item.keys() == members
        # Whole seconds: finer times would tell how long steps on private records take.
        assert len(item["created_at"]) == len("2026-01-01T00:00:00Z")


def test_pause_and_resume(client: TestClient, dataset_id: str) -> None:
    job = submitted(client, dataset_id)
    paused = client.post(job["links"]["pause"])
    assert (paused.status_code, paused.json()["state"]) == (202, "paused")
    assert paused.json()["links"]["pause"] is None
    assert client.get("/v1/jobs", params={"state": "paused"}).json()["items"] == [paused.json()]
    reserved = client.get(f"/v1/datasets/{dataset_id}").json()["privacy"]["units"]["reserved"]
    assert reserved == job["cost"]["units"]
    resumed = client.post(paused.json()["links"]["resume"])
    assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
    again = client.post(f"/v1/jobs/{job['id']}:resume")
    assert (again.status_code, again.json()["code"]) == (409, "state-conflict")


def test_clone_is_the_same_request_with_changes(client: TestClient, dataset_id: str) -> None:
    job = submitted(client, dataset_id, seed=7)
    reply = client.post(job["links"]["clone"], json={"epsilon": 0.5, "accept_low_utility": True})
    copy = reply.json()
    assert (reply.status_code, reply.headers["Location"]) == (202, f"/v1/jobs/{copy['id']}")
    assert copy["id"] != job["id"]
    assert copy["spec"] == {**job["spec"], "epsilon": 0.5}
    bare = client.post(job["links"]["clone"], headers={"Idempotency-Key": "k"})
    assert bare.json()["spec"] == job["spec"]
    assert client.post(job["links"]["clone"], headers={"Idempotency-Key": "k"}).json()["id"] == bare.json()["id"]
    assert client.post(job["links"]["clone"], json={"epsilom": 1}).status_code == 422
    assert client.post("/v1/jobs/job_of_nobody:clone").status_code == 404


def test_list_is_narrowed(client: TestClient, services: Services, dataset_id: str) -> None:
    first, second = submitted(client, dataset_id), submitted(client, dataset_id)
    with services.database.transaction() as session:
        session.get_one(JobRow, first["id"]).created_at -= timedelta(seconds=1)
    client.post(first["links"]["cancel"])

    def found(**params: str) -> list[str]:
        reply = client.get("/v1/jobs", params=params)
        assert reply.status_code == 200, reply.text
        return [item["id"] for item in reply.json()["items"]]

    assert found(state="cancelled") == [first["id"]]
    assert found(dataset_id=dataset_id) == [second["id"], first["id"]]
    assert found(dataset_id="ds_other") == []
    assert found(created_before=second["created_at"]) == [first["id"]]
    assert found(created_after=second["created_at"]) == [second["id"]]
    assert client.get("/v1/jobs", params={"state": "asleep"}).status_code == 422


def test_estimate_is_there_once_steps_were_made(client: TestClient, services: Services, dataset_id: str) -> None:
    job = submitted(client, dataset_id)
    lease = claimed(services, job["id"])
    leases.progress(services.database, lease, "training", 0, 4)
    leases.progress(services.database, lease, "training", 2, 4)
    shown = client.get(job["links"]["self"]).json()
    assert shown["progress"]["eta_seconds"] >= 1
    assert shown["estimated_finish_at"] >= shown["created_at"][:19]
    leases.give_back(services.database, lease)
    shown = client.get(job["links"]["self"]).json()
    assert (shown["progress"]["eta_seconds"], shown["estimated_finish_at"]) == (None, None)
