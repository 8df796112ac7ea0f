"""Keys over HTTP: made, narrowed, rotated, revoked, expired; how much they may send; what is noted of them."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import anyio
import numpy as np
import pytest
from api_builders import npz, released, send_images, training
from event_loops import run_alone
from sqlalchemy import update
from starlette.testclient import TestClient
from starlette.types import Scope
from test_validation import uploaded

from datalens_service.api.deps import Services
from datalens_service.api.security import access_logging
from datalens_service.api.security.access_logging import _object
from datalens_service.base.errors import LedgerCorrupt, StoreUnavailable
from datalens_service.store.access import access_log, keys
from datalens_service.store.schema.tables import ApiKeyRow


def made(client: TestClient, **members: Any) -> dict[str, Any]:
    reply = client.post("/v1/api-keys", json={"name": "partner", "role": "consumer", **members})
    assert reply.status_code == 201, reply.text
    found: dict[str, Any] = reply.json()
    return found


def status_with(client: TestClient, plain: str, path: str = "/v1/generators") -> int:
    return client.get(path, headers={"Authorization": f"Bearer {plain}"}).status_code


def test_a_key_is_shown_once_and_works(client: TestClient) -> None:
    key = made(client)
    assert status_with(client, key["api_key"]) == 200
    shown = client.get(f"/v1/api-keys/{key['key']['id']}").json()
    assert shown == key["key"]
    assert (shown["role"], shown["scopes"]) == ("consumer", ["releases:read"])
    assert key["api_key"] not in client.get("/v1/api-keys").text
    assert [item["name"] for item in client.get("/v1/api-keys").json()["items"]] == ["test", "partner"]


def test_a_revoked_or_expired_key_is_refused(client: TestClient, services: Services) -> None:
    revoked = made(client)
    path = f"/v1/api-keys/{revoked['key']['id']}"
    assert client.delete(path).json()["revoked_at"] is not None
    assert status_with(client, revoked["api_key"]) == 401
    again = client.post(f"{path}:rotate")
    assert (again.status_code, again.json()["code"]) == (409, "state-conflict")
    key = made(client, expires_at=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    assert status_with(client, key["api_key"]) == 200
    with services.database.transaction() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key["key"]["id"]).values(expires_at=past))
    assert status_with(client, key["api_key"]) == 401
    reply = client.post("/v1/api-keys", json={"name": "x", "role": "owner", "expires_at": "2020-01-01T00:00:00Z"})
    assert reply.status_code == 422


def test_rotation_leaves_both_for_a_while(client: TestClient, services: Services) -> None:
    key = made(client, requests_per_minute=60)
    path = f"/v1/api-keys/{key['key']['id']}:rotate"
    new = client.post(path, json={"overlap_seconds": 60}).json()
    assert new["key"]["id"] != key["key"]["id"]
    assert (new["key"]["role"], new["key"]["requests_per_minute"]) == ("consumer", 60)
    assert (status_with(client, key["api_key"]), status_with(client, new["api_key"])) == (200, 200)
    old = keys.get(services.database, key["key"]["id"])
    assert old.expires_at is not None
    assert old.expires_at <= datetime.now(UTC) + timedelta(seconds=60)
    at_once = client.post(f"/v1/api-keys/{new['key']['id']}:rotate", json={"overlap_seconds": 0}).json()
    assert (status_with(client, new["api_key"]), status_with(client, at_once["api_key"])) == (401, 200)


def test_a_role_does_not_take_scopes_of_another(client: TestClient) -> None:
    reply = client.post("/v1/api-keys", json={"name": "x", "role": "consumer", "scopes": ["privacy:raise"]})
    assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input")


def test_too_many_requests_are_told_when_to_come_back(client: TestClient) -> None:
    plain = made(client, requests_per_minute=6)["api_key"]
    headers = {"Authorization": f"Bearer {plain}"}
    first = client.get("/v1/generators", headers=headers)
    assert first.headers["RateLimit-Policy"] == '"default";q=6;w=60'
    refused = client.get("/v1/generators", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate-limited")
    assert refused.headers["Retry-After"] == str(refused.json()["retry_after"]) == "10"
    # Somebody else is not held up.
    assert client.get("/v1/generators").status_code == 200


def test_what_touches_private_data_keys_and_releases_is_noted(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path
) -> None:
    job_id = released(client, tmp_path, dataset_id)
    client.get(f"/v1/jobs/{job_id}")
    client.get(f"/v1/jobs/{job_id}/report")
    key_id = made(client)["key"]["id"]
    client.get("/v1/jobs/job_of_nobody/report")
    client.delete(f"/v1/datasets/{dataset_id}")
    page = client.get("/v1/audit").json()
    assert [(item["action"], item["object_id"], item["outcome"]) for item in page["items"]] == [
        ("createDataset", dataset_id, 201),
        ("createJob", job_id, 202),
        ("getJobReport", job_id, 200),
        ("createApiKey", key_id, 201),
        ("getJobReport", "job_of_nobody", 404),
        ("deleteDataset", dataset_id, 200),
    ]
    [actor] = {item["actor"] for item in page["items"]}
    assert actor == keys.list_keys(services.database)[0].id != key_id
    assert page["head_hash"] == page["items"][-1]["hash"]
    assert access_log.verify(services.database, "default").seq == 6
    rest = client.get("/v1/audit", params={"after": 3, "limit": 1}).json()
    assert ([item["seq"] for item in rest["items"]], rest["next_cursor"]) == ([4], 4)


def test_what_was_created_is_noted_by_its_id(client: TestClient, dataset_id: str, tmp_path: Path) -> None:
    created = noted_creations(client, dataset_id, tmp_path)
    described = client.get("/openapi.json").json()["paths"].values()
    assert set(created) == {
        operation["operationId"]
        for methods in described
        for operation in methods.values()
        if operation.get("x-audited")
        and any("Location" in answer.get("headers", {}) for answer in operation["responses"].values())
    }
    page = client.get("/v1/audit").json()
    noted = {item["action"]: (item["object_id"], item["detail"]) for item in page["items"]}
    assert {action: noted[action] for action in created} == created
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", item["at"]) for item in page["items"])


def noted_creations(client: TestClient, dataset_id: str, tmp_path: Path) -> dict[str, tuple[str, str]]:
    """Object and detail that every operation which creates something must have in the journal."""
    job_id = released(client, tmp_path, dataset_id)
    clone = client.post(f"/v1/jobs/{job_id}:clone").json()
    upload_id = uploaded(client, npz())
    key = made(client)["key"]
    rotated = client.post(f"/v1/api-keys/{key['id']}:rotate").json()["key"]
    hook = client.post("/v1/webhooks", json={"url": "https://1.1.1.1/", "events": ["job.failed"]}).json()["webhook"]
    many = npz(images=np.arange(400 * 64).reshape(400, 8, 8).astype(np.uint8), labels=np.arange(400) % 4)
    larger = send_images(client, many).json()["id"]
    target = {"kind": "unprotected", "dataset_id": larger}
    audit = client.post("/v1/audits", json={"target": target, "attacks": ["loss_threshold"]})
    assert audit.status_code == 202, audit.text
    assert client.post(f"/v1/jobs/{job_id}/artifacts/samples.png:sign").status_code == 201
    release_id = job_id.replace("job_", "gen_")
    link = client.post(f"/v1/releases/{release_id}/links", json={"partner": "a clinic"}).json()["link"]
    file = client.get(f"/v1/jobs/{job_id}/generator").content
    imported = client.post("/v1/generators", files={"file": file}, data={"name": "again"})
    assert imported.status_code == 201, imported.text
    made_of = client.post("/v1/datasets:from-upload", json={"upload_id": upload_id, "epsilon": 1})
    assert made_of.status_code == 202, made_of.text
    return {
        "createDataset": (larger, ""),
        "createDatasetFromUpload": (made_of.json()["id"], ""),
        "createJob": (job_id, ""),
        "cloneJob": (job_id, f"made {clone['id']}"),
        "createUpload": (upload_id, ""),
        "createApiKey": (key["id"], ""),
        "rotateApiKey": (key["id"], f"made {rotated['id']}"),
        "createWebhook": (hook["id"], ""),
        "createAudit": (audit.json()["id"], ""),
        "createDownloadAddress": (job_id, ""),
        "createReleaseLink": (release_id, f"made {link['id']}"),
        "importGenerator": (imported.json()["id"], ""),
    }


@pytest.mark.parametrize(
    ("statement", "entry"),
    [
        ("UPDATE audit_entries SET outcome = 200 WHERE seq = 1", "Entry 1 "),
        ("UPDATE audit_entries SET actor = 'key_other' WHERE seq = 1", "Entry 1 "),
        ("UPDATE audit_entries SET detail = 'x' WHERE seq = 1", "Entry 1 "),
        ("DELETE FROM audit_entries WHERE seq = 2", "Entry 2 "),
    ],
)
def test_a_journal_that_was_altered_or_lost_its_end_is_noticed(
    client: TestClient, services: Services, statement: str, entry: str
) -> None:
    made(client)
    made(client)
    with services.database.transaction() as session:
        for sql in ("DROP TRIGGER audit_entries_no_update", "DROP TRIGGER audit_entries_no_delete", statement):
            session.connection().exec_driver_sql(sql)
    with pytest.raises(LedgerCorrupt, match=entry):
        access_log.verify(services.database, "default")


@pytest.mark.parametrize(("error", "status"), [(OSError(), 500), (StoreUnavailable("full"), 503)])
def test_without_the_note_there_is_no_answer(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
) -> None:
    monkeypatch.setattr(access_log, "note", Mock(side_effect=error))
    reply = client.post("/v1/api-keys", json={"name": "partner", "role": "consumer"})
    assert reply.status_code == status
    assert ("Retry-After" in reply.headers) == (status == 503)
    assert "dlk_" not in reply.text


def test_a_client_that_hangs_up_takes_no_note_along(services: Services) -> None:
    key = keys.list_keys(services.database)[0]

    async def call() -> None:
        with anyio.CancelScope() as client:
            client.cancel()
            await access_logging._note(scope, {"status": 200, "headers": []})

    app = SimpleNamespace(state=SimpleNamespace(services=services))
    route = SimpleNamespace(operation_id="getJobReport")
    scope: Scope = {"app": app, "state": {"caller": key}, "route": route, "path_params": {"job_id": "job_1"}}
    run_alone(call())
    entries, _ = access_log.list_entries(services.database, key.tenant_id)
    assert [(entry.actor, entry.object_id) for entry in entries] == [(key.id, "job_1")]


def test_the_last_object_of_a_path_is_the_one_that_is_meant() -> None:
    assert _object({"webhook_id": "wh_1", "delivery_id": "msg_1"}) == "msg_1"
    assert _object({"slug": "x"}) is None
    assert _object({"job_id": "j" * 64}) == "j" * 40


def test_usage_counts_what_there_is(client: TestClient, dataset_id: str, tmp_path: Path) -> None:
    job_id = released(client, tmp_path, dataset_id)
    client.post("/v1/jobs", json=training(dataset_id))
    shown = client.get("/v1/usage").json()
    assert (shown["datasets"], shown["jobs"], shown["generators"], shown["api_keys"]) == (
        1,
        {"succeeded": 1, "queued": 1},
        1,
        1,
    )
    files = client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]
    sizes = [file["size"] for file in files if file["releasable"]]
    assert len(sizes) < len(files)
    assert shown["artifact_bytes"] == sum(sizes) > 0
    assert shown["job_seconds"] >= 0
