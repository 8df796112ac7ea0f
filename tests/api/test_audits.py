"""Audits over REST, worked off by the code that works off jobs: what they find, and who hears of it."""

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from api_builders import bearer, browser, claimed, found_by_attacks, journal, npz_of, send_images, succeed, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.base.errors import BudgetExceeded
from datalens_service.jobs.execute import execute
from datalens_service.jobs.job_watch import ShutdownRequested
from datalens_service.privacy.accounting import mu_of_ledger_units
from datalens_service.store.access import webhooks
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs import audits, jobs, leases
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.jobs.leases import Lease
from datalens_service.store.ledger.account import JobAccount

CANARY = 918_273_645
PICTURE = b"\x89PNG kestrel"
SECRETS = (str(CANARY), str(CANARY + 1), base64.b64encode(PICTURE).decode(), "kestrel")
"""Of membership, of inversion, and its picture, encoded and as it is."""


def digits(num_test: int = 297) -> bytes:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = (bunch.images * 15).astype(np.uint8), bunch.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(labels))
    test, train = order[:num_test], order[num_test:]
    held_out = {"test_images": images[test], "test_labels": labels[test]}
    return npz_of(images=images[train], labels=labels[train], **held_out)


@pytest.fixture
def digits_id(client: TestClient) -> str:
    reply = send_images(client, digits())
    assert reply.status_code == 201, reply.text
    assert reply.json()["has_test_split"]
    return str(reply.json()["id"])


def unprotected(dataset_id: str, **settings: Any) -> dict[str, Any]:
    return {"target": {"kind": "unprotected", "dataset_id": dataset_id, **settings}}


def rehearsal(dataset_id: str, **spec: Any) -> dict[str, Any]:
    spec = {"method": {"name": "dp_sgd", "architecture": "mlp", "steps": 10}, "epsilon": 1.0, **spec}
    return {"target": {"kind": "rehearsal", "dataset_id": dataset_id, "spec": spec}}


def submitted(client: TestClient, request: dict[str, Any]) -> str:
    reply = client.post("/v1/audits", json=request)
    assert reply.status_code == 202, reply.text
    assert reply.headers["Location"] == f"/v1/audits/{reply.json()['id']}"
    return str(reply.json()["id"])


def taken(services: Services) -> Lease:
    lease = leases.claim_next(services.database, "worker", 600)
    assert lease is not None
    return lease


def worked_off(client: TestClient, services: Services, request: dict[str, Any]) -> dict[str, Any]:
    """The audit after a worker has taken it from the queue and done it."""
    audit_id = submitted(client, request)
    job = execute(services.database, services.artifacts, services.settings, taken(services))
    assert (job.id, job.state, job.error) == (audit_id, JobState.SUCCEEDED, None)
    audit: dict[str, Any] = client.get(f"/v1/audits/{audit_id}").json()
    assert audit["state"] == "succeeded"
    return audit


def strongest(audit: dict[str, Any]) -> dict[str, Any]:
    return max((one["figures"] for one in audit["result"]["attacks"]), key=lambda figures: figures["auc"])


def with_canary(services: Services, dataset_id: str, attacked_job_id: str | None) -> str:
    """A finished audit whose figures nothing else has."""
    spec = {"method": {"name": "moments"}, "epsilon": 1.0}
    request = {"target": {"kind": "rehearsal", "dataset_id": dataset_id, "spec": spec}}
    audit = audits.create(
        services.database,
        dataset_id=dataset_id,
        request=request,
        submitted_by="key_test",
        attacked_job_id=attacked_job_id,
    )
    lease = claimed(services, audit.job.id)
    audits.store_result(services.database, lease, found_by_attacks(CANARY), PICTURE)
    leases.finish(services.database, lease, JobState.SUCCEEDED)
    return audit.job.id


@pytest.mark.usefixtures("seeded_entropy")
def test_a_network_without_privacy_is_caught_and_a_private_one_is_not(
    client: TestClient, services: Services, digits_id: str
) -> None:
    books = journal(client, digits_id)
    groups = {"even": ["0", "2", "4", "6", "8"]}
    bare = worked_off(client, services, {**unprotected(digits_id), "references": 3})
    with structlog.testing.capture_logs() as lines:
        private = worked_off(client, services, {**rehearsal(digits_id), "references": 3, "groups": groups})
    # The lower end of the interval was 0.54 to 0.61 over six partitions, and once 0.497.
    assert strongest(bare)["interval"][0] > 0.47
    assert bare["result"]["mu"] is None
    for one in private["result"]["attacks"]:
        assert one["figures"]["interval"][0] <= one["figures"]["auc_allowed"]
        assert one["figures"]["interval"][0] < 0.55
    check_figures(private["result"], groups["even"])
    assert journal(client, digits_id) == books, "an audit charges and reserves nothing"
    assert [line["event"] for line in lines], "what is captured has something to search"
    # Without the time that a request took: it may have the digits of a figure.
    text = json.dumps([{**line, "seconds": None} for line in lines], default=str)
    figures = strongest(private)
    told = (figures["auc"], *figures["interval"], *(one["success"] for one in private["result"]["classes"]))
    assert not [number for number in told if str(number) in text]


def check_figures(result: dict[str, Any], even: list[str]) -> None:
    """They are lower bounds with intervals, and beside each curve is the one that μ allows."""
    (group,) = result["groups"]
    assert (group["group"], group["class_names"]) == ("even", even)
    assert group["interval"][0] < group["success"] < group["interval"][1]
    assert (result["bound"], result["audience"], result["references"]) == ("lower_bound", "owner", 3)
    figures = result["attacks"][0]["figures"]
    assert figures["interval"][0] < figures["auc"] < figures["interval"][1]
    points = figures["curve"]
    assert (points[-1]["false_positive_rate"], points[-1]["true_positive_rate"]) == (1, 1)
    for name in ("false_positive_rate", "true_positive_rate", "allowed"):
        assert [point[name] for point in points] == sorted(point[name] for point in points)
    assert all(point["allowed"] >= point["false_positive_rate"] for point in points)


@pytest.mark.parametrize("attacks", [["loss_threshold"], ["loss_threshold", "reference"]], ids=len)
def test_a_released_classifier_is_attacked_with_test_images_as_non_members(
    client: TestClient, services: Services, digits_id: str, attacks: list[str]
) -> None:
    method = {"name": "dp_sgd", "architecture": "linear", "steps": 5}
    body = training(digits_id, method=method, evaluation={"enabled": False})
    job_id = client.post("/v1/jobs", json=body).json()["id"]
    execute(services.database, services.artifacts, services.settings, taken(services))
    request = {"target": {"kind": "released", "job_id": job_id}, "attacks": attacks, "references": 2}
    audit = worked_off(client, services, request)
    assert audit["dataset_id"] == digits_id
    assert audit["result"]["units_per_model"] == 1500
    assert audit["result"]["references"] == (2 if len(attacks) > 1 else 0)
    figures = audit["result"]["attacks"][0]["figures"]
    assert figures["non_members"] == 297
    assert figures["members"] == (1500 if len(attacks) == 1 else 375)
    assert figures["auc_allowed"] < 0.58
    listed = client.get("/v1/audits", params={"job_id": job_id}).json()["items"]
    assert [one["id"] for one in listed] == [audit["id"]]


INVERSION = {"attacks": ["inversion"], "inversion": {"records": 6, "iterations": 40, "restarts": 1}}


def test_gradients_are_inverted_and_only_the_owner_sees_the_picture(
    client: TestClient, services: Services, digits_id: str
) -> None:
    books = journal(client, digits_id)
    with structlog.testing.capture_logs() as lines:
        audit = worked_off(client, services, {**rehearsal(digits_id), **INVERSION})
    figures = audit["result"]["inversion"]
    assert (audit["result"]["bound"], audit["result"]["audience"], figures["bound"]) == (
        "lower_bound",
        "owner",
        "lower_bound",
    )
    assert figures["raw"]["median"] < 0.3 < 0.7 < figures["released"]["median"]
    assert audit["result"]["attacks"] == audit["result"]["classes"] == []
    assert "picture" not in audit["result"]
    seen = client.get(audit["links"]["picture"])
    assert (seen.headers["Content-Type"], seen.content[:4]) == ("image/png", b"\x89PNG")
    assert "no-store" in seen.headers["Cache-Control"]
    for role, status in ((Role.OPERATOR, 403), (Role.CONSUMER, 403)):
        headers = bearer(client, KeyRequest(role, role=role))
        assert client.get(audit["links"]["picture"], headers=headers).status_code == status
    assert journal(client, digits_id) == books, "an audit charges and reserves nothing"
    text = json.dumps(lines, default=str)
    errors = (*figures["raw"].values(), *figures["released"].values())
    assert lines
    assert not [number for number in errors if str(number) in text]


def test_members_and_gradients_are_attacked_together(client: TestClient, services: Services, digits_id: str) -> None:
    request = {**unprotected(digits_id, passes=1), **INVERSION, "attacks": ["loss_threshold", "inversion"]}
    result = worked_off(client, services, request)["result"]
    assert [one["attack"] for one in result["attacks"]] == ["loss_threshold"]
    assert (result["inversion"]["released"], result["inversion"]["noise"]) == (None, "none")


def test_the_gradients_of_a_job_are_inverted_with_its_own_noise(
    client: TestClient, services: Services, digits_id: str
) -> None:
    method = {"name": "dp_sgd", "architecture": "linear", "steps": 5}
    body = training(digits_id, method=method, evaluation={"enabled": False})
    job = client.post("/v1/jobs", json=body).json()
    execute(services.database, services.artifacts, services.settings, taken(services))
    target = {"kind": "released", "job_id": job["id"]}
    figures = worked_off(client, services, {"target": target, **INVERSION})["result"]["inversion"]
    charged = jobs.get(services.database, job["id"]).charged_units
    assert figures["noise_multiplier"] == pytest.approx(1 / mu_of_ledger_units(charged // 5), rel=1e-3)
    assert figures["architecture"] == "linear"


def test_methods_without_gradients_of_records_are_not_inverted(client: TestClient, digits_id: str) -> None:
    spec = {"method": {"name": "moments"}, "epsilon": 1.0}
    target = {"kind": "rehearsal", "dataset_id": digits_id, "spec": spec}
    for attacks in [["inversion"], ["loss_threshold", "inversion"]]:
        reply = client.post("/v1/audits", json={"target": target, "attacks": attacks})
        assert reply.status_code == 422, attacks
        assert "dp_sgd" in reply.json()["detail"]


def test_what_a_rehearsal_leaves_out_is_planned_as_for_a_job(client: TestClient, digits_id: str) -> None:
    for method in ({"name": "dp_sgd"}, {"name": "dp_sgd", "steps": 7}, {"name": "diffusion"}):
        spec = {"method": method, "epsilon": 1.0}
        audit = client.get(f"/v1/audits/{submitted(client, rehearsal(digits_id, **spec))}").json()
        plan = client.post("/v1/plans", json={"dataset_id": digits_id, "spec": spec}).json()
        assert audit["target"]["spec"]["method"] == plan["spec"]["method"]


def test_an_audit_is_no_job_and_keeps_no_model(client: TestClient, services: Services, digits_id: str) -> None:
    request = {**unprotected(digits_id, passes=1), "attacks": ["loss_threshold"]}
    audit = worked_off(client, services, request)
    assert client.get("/v1/jobs").json()["items"] == []
    for path in ("", "/events", "/artifacts", "/report", "/bundle", "/generator", "/classifier"):
        assert client.get(f"/v1/jobs/{audit['id']}{path}").status_code == 404
    assert client.post(f"/v1/jobs/{audit['id']}:cancel").status_code == 404
    assert client.get("/v1/generators").json()["items"] == client.get("/v1/classifiers").json()["items"] == []
    assert services.artifacts.list_artifacts(audit["id"]) == ()
    assert [path for path in (services.settings.data_dir / "private").rglob("*") if path.is_file()] == []


def test_what_attacks_found_is_in_nothing_but_the_audit(client: TestClient, services: Services, digits_id: str) -> None:
    told = [event for event in EventType if event is not EventType.PROGRESS]
    hook, _ = webhooks.create(services.database, "default", "https://example.org/hook", told)
    with_canary(services, digits_id, None)
    job_id = client.post("/v1/jobs", json=training(digits_id, evaluation={"enabled": False})).json()["id"]
    execute(services.database, services.artifacts, services.settings, taken(services))
    assert str(CANARY) in client.get(f"/v1/jobs/{job_id}/report?audience=owner").text
    before = len(webhooks.list_deliveries(services.database, hook.id, limit=100).items)
    audit_id = with_canary(services, digits_id, job_id)
    told_to_owner = client.get(f"/v1/audits/{audit_id}").text
    assert all(canary in told_to_owner for canary in SECRETS[:2])
    assert client.get(f"/v1/audits/{audit_id}/picture").content == PICTURE
    assert len(webhooks.list_deliveries(services.database, hook.id, limit=100).items) == before
    paths = [
        "/v1/jobs",
        f"/v1/jobs/{job_id}",
        f"/v1/jobs/{job_id}/events",
        f"/v1/jobs/{job_id}/bundle",
        f"/v1/jobs/{job_id}/report?audience=releasable",
        f"/v1/datasets/{digits_id}",
        f"/v1/datasets/{digits_id}/privacy/entries",
        "/v1/usage",
        "/v1/audit",
        "/metrics",
    ]
    for path in paths:
        reply = client.get(path)
        assert reply.status_code == 200, path
        assert not [secret for secret in SECRETS if secret in reply.text], path
        assert audit_id not in reply.text or path == "/v1/audit", path
    archive = client.get(f"/v1/jobs/{job_id}/dataset")
    assert archive.status_code == 200
    assert not [secret for secret in SECRETS if secret.encode() in archive.content]


def test_the_owners_report_has_what_a_rehearsal_found_and_the_releasable_one_says_where_it_lies(
    client: TestClient, services: Services, digits_id: str
) -> None:
    spec = {"method": {"name": "moments"}, "epsilon": 1.0}
    target = {"kind": "rehearsal", "dataset_id": digits_id, "spec": spec}
    audit = worked_off(client, services, {"target": target, "attacks": ["loss_threshold"]})
    job_id = client.post("/v1/jobs", json=training(digits_id, evaluation={"enabled": False})).json()["id"]
    other = client.post("/v1/jobs", json=training(digits_id, epsilon=2, evaluation={"enabled": False})).json()["id"]
    for _ in range(2):
        execute(services.database, services.artifacts, services.settings, taken(services))
    owners, releasable = (
        client.get(f"/v1/jobs/{job_id}/report", params={"audience": audience}).json()
        for audience in ("owner", "releasable")
    )
    (finding,) = owners["attacks"]["findings"]
    assert (finding["audit"], finding["auc"]) == (audit["id"], strongest(audit)["auc"])
    assert releasable["attacks"]["findings"] == []
    assert "lies with the owner" in releasable["attacks"]["notice"]
    assert str(finding["auc"]) not in json.dumps(releasable)
    assert "attacks" not in client.get(f"/v1/jobs/{other}/report", params={"audience": "owner"}).json()


def test_an_audit_cannot_charge_the_account(client: TestClient, services: Services, digits_id: str) -> None:
    submitted(client, unprotected(digits_id))
    lease = taken(services)
    with pytest.raises(BudgetExceeded):
        JobAccount(services.database, lease.job_id, lease.token).charge(0, "sum", 1)


def test_a_queued_audit_is_cancelled_at_once_and_a_running_one_between_steps(
    client: TestClient, services: Services, digits_id: str
) -> None:
    queued = submitted(client, unprotected(digits_id))
    assert client.post(f"/v1/audits/{queued}:cancel").json()["state"] == "cancelled"
    running = submitted(client, unprotected(digits_id))
    lease = taken(services)
    assert client.post(f"/v1/audits/{running}:cancel").json()["state"] == "running"
    job = execute(services.database, services.artifacts, services.settings, lease)
    assert (job.id, job.state) == (running, JobState.CANCELLED)
    assert client.get(f"/v1/audits/{running}").json()["result"] is None
    assert client.post(f"/v1/audits/{running}:cancel").status_code == 409


def test_an_audit_that_lost_its_worker_waits_again(client: TestClient, services: Services, digits_id: str) -> None:
    request = {**unprotected(digits_id, passes=1), "attacks": ["loss_threshold"]}
    audit_id = submitted(client, request)

    def interrupt(_phase: str, _value: int, _maximum: int) -> None:
        raise ShutdownRequested

    lease = taken(services)
    with pytest.raises(ShutdownRequested):
        execute(services.database, services.artifacts, services.settings, lease, interrupt)
    leases.give_back(services.database, lease)
    assert client.get(f"/v1/audits/{audit_id}").json()["state"] == "queued"
    execute(services.database, services.artifacts, services.settings, taken(services))
    assert client.get(f"/v1/audits/{audit_id}").json()["state"] == "succeeded"


def test_figures_go_with_the_data(client: TestClient, services: Services, digits_id: str) -> None:
    waiting = submitted(client, unprotected(digits_id))
    audit_id = with_canary(services, digits_id, None)
    assert client.delete(f"/v1/datasets/{digits_id}").status_code == 409
    client.post(f"/v1/audits/{waiting}:cancel")
    assert client.delete(f"/v1/datasets/{digits_id}").status_code == 200
    audit = client.get(f"/v1/audits/{audit_id}").json()
    assert (audit["state"], audit["result"], audit["links"]["picture"]) == ("succeeded", None, None)
    assert client.get(f"/v1/audits/{audit_id}/picture").status_code == 404
    assert client.post("/v1/audits", json=unprotected(digits_id)).status_code == 409


def test_the_same_key_is_the_same_audit(client: TestClient, digits_id: str) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post("/v1/audits", json=unprotected(digits_id), headers=headers)
    again = client.post("/v1/audits", json=unprotected(digits_id), headers=headers)
    assert first.json()["id"] == again.json()["id"]
    assert client.post("/v1/audits", json=rehearsal(digits_id), headers=headers).status_code == 409
    assert client.post("/v1/jobs", json=training(digits_id), headers=headers).status_code == 409


def test_bad_requests_are_refused(client: TestClient, digits_id: str) -> None:
    for change, status in [
        ({"attacks": ["reference", "reference"]}, 422),
        ({"target": {"kind": "released", "job_id": "job_none"}}, 404),
        ({"groups": {"even": ["0", "2", "ten"]}}, 422),
    ]:
        reply = client.post("/v1/audits", json={**unprotected(digits_id), **change})
        assert reply.status_code == status, change


def test_small_datasets_and_those_without_test_images_are_refused(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path
) -> None:
    assert client.post("/v1/audits", json=unprotected(dataset_id)).json()["code"] == "invalid-spec"
    job_id = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    request = {"target": {"kind": "released", "job_id": job_id}, "attacks": ["loss_threshold"]}
    assert client.post("/v1/audits", json=request).json()["code"] == "state-conflict"
    succeed(services, job_id, tmp_path)
    assert client.post("/v1/audits", json=request).json()["code"] == "invalid-spec"


def test_audits_are_started_from_the_pages_and_listed(client: TestClient, digits_id: str) -> None:
    page = browser(client).get(f"/datasets/{digits_id}").text
    body = json.loads(html.unescape(str(re.findall(r'data-send="POST /v1/audits" data-adds="([^"]+)"', page)[0])))
    audit_id = submitted(client, body)
    assert f'href="/audits/{audit_id}"' in browser(client).get(f"/datasets/{digits_id}").text
