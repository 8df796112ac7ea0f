"""Tenants do not see each other, and roles reach as far as they should: for every operation of the description."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from api_builders import another_caller, browser, description, npz, one_of_everything, send_images, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.security.permissions import RULES
from datalens_service.store.access import tenants
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import SCOPES, Role, Scope
from datalens_service.store.datasets import fingerprints
from datalens_service.store.datasets.datasets import get as stored_dataset

# Of paths, beside those that `tenants.OWNED` knows: names within an object that is looked at already.
WITHIN = {"name": "generator.safetensors"}
ABSENT = "x" * 32
SPEC = {"method": {"name": "moments"}, "epsilon": 1}


@functools.cache
def operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Of each that asks for a key: its HTTP method, its path, and its description."""
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in description()["paths"].items()
        for method, operation in methods.items()
        if operation.get("security")
    }


def operations_on_objects() -> dict[str, tuple[str, str, dict[str, Any]]]:
    return {name: found for name, found in operations().items() if "{" in found[1]}


def given(operation: dict[str, Any]) -> dict[str, Any]:
    """The body of the first example, as arguments of a request."""
    body = operation.get("requestBody")
    if body is None:
        return {}
    media_type, media = next(iter(body["content"].items()))
    if media_type == "multipart/form-data":
        return {"files": {"file": npz()}}
    if media_type != "application/json":
        return {"content": b"", "headers": {"Content-Type": media_type, "Upload-Offset": "0"}}
    return {"json": next(iter(media["examples"].values()))["value"]}


def call(client: TestClient, name: str, ids: dict[str, str], params: dict[str, str] | None = None) -> Any:
    method, path, operation = operations()[name]
    return client.request(method, path.format_map({**WITHIN, **ids}), params=params, **given(operation))


@pytest.fixture
def house(client: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> dict[str, str]:
    """Ids of the first tenant: a succeeded job with all that hangs on it."""
    return one_of_everything(client, services, dataset_id, tmp_path)


@pytest.fixture
def stranger(services: Services, client: TestClient) -> TestClient:
    """An owner of another tenant, on the same service."""
    other = tenants.create(services.database, "other")
    return another_caller(client, KeyRequest("stranger", tenant_id=other.id))


def test_every_operation_has_a_rule_and_every_object_an_owner() -> None:
    assert set(operations()) <= set(RULES), "name scope and audit of the new operation in api/security/permissions.py"
    parameters = {
        one["name"]
        for _, _, operation in operations_on_objects().values()
        for one in operation["parameters"]
        if one["in"] == "path"
    }
    assert parameters == set(tenants.OWNED) | set(WITHIN), "say in store/schema/tables.py and tenants.py whose it is"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer dlk_wrong"}])
def test_every_operation_needs_a_key(client: TestClient, headers: dict[str, str]) -> None:
    for number, name in enumerate(operations()):
        # From one address, so many wrong keys would be held up.
        address = (f"192.0.2.{number}", 5000)
        nobody = TestClient(client.app, base_url="http://service", headers=headers, client=address)
        reply = call(nobody, name, dict.fromkeys((*tenants.OWNED, *WITHIN), ABSENT))
        assert (reply.status_code, reply.headers["WWW-Authenticate"]) == (401, "Bearer"), name


def test_an_object_of_another_tenant_does_not_exist(stranger: TestClient, house: dict[str, str]) -> None:
    for name in operations_on_objects():
        foreign = call(stranger, name, house)
        absent = call(stranger, name, dict.fromkeys(house, ABSENT))
        expected = 403 if RULES[name].cross_tenant else 404
        assert (foreign.status_code, absent.status_code) == (expected, expected), name
        if operations_on_objects()[name][0] == "head":
            continue
        shown, expected = foreign.json(), absent.json()
        assert shown.pop("instance") != expected.pop("instance")
        assert shown == expected, "the answer tells that the object exists"


def test_lists_and_counts_hold_nothing_of_another_tenant(stranger: TestClient, house: dict[str, str]) -> None:
    listing = [name for name in operations() if name not in operations_on_objects() and operations()[name][0] == "get"]
    assert len(listing) >= 7
    for name in listing:
        reply = call(stranger, name, {}, params={"pixel_hash": "0" * 64} if name == "listReleasedImages" else None)
        assert reply.status_code == (403 if RULES[name].cross_tenant else 200), name
        assert not any(identifier in reply.text for identifier in house.values()), name
    assert stranger.get("/v1/usage").json()["datasets"] == 0
    assert stranger.get("/v1/jobs", params={"dataset_id": house["dataset_id"]}).json()["items"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *(
            (path, body)
            # Earlier clients send it to the first.
            for path in ("/v1/datasets", "/v1/datasets:from-upload")
            for body in (
                {"upload_id": "{upload_id}", "epsilon": 1},
                {"upload_id": "{own}", "epsilon": 1, "shares_budget_with": "{dataset_id}"},
            )
        ),
        ("/v1/plans", training("{dataset_id}")),
        ("/v1/jobs", training("{dataset_id}")),
        ("/v1/jobs/{own_job}:clone", {"dataset_id": "{dataset_id}"}),
        ("/v1/audits", {"target": {"kind": "unprotected", "dataset_id": "{dataset_id}"}}),
        ("/v1/audits", {"target": {"kind": "rehearsal", "dataset_id": "{dataset_id}", "spec": SPEC}}),
        ("/v1/audits", {"target": {"kind": "released", "job_id": "{job_id}"}}),
    ],
)
def test_a_body_cannot_name_an_object_of_another_tenant(
    stranger: TestClient, house: dict[str, str], path: str, body: dict[str, Any]
) -> None:
    upload = stranger.post("/v1/uploads", headers={"Upload-Length": "8", "Tus-Resumable": "1.0.0"}).json()["id"]
    job = stranger.post("/v1/jobs", json=training(send_images(stranger).json()["id"])).json()["id"]
    own = {"own": upload, "own_job": job}
    foreign, absent = (
        stranger.post(path.format_map(own), json=named(body, {**ids, **own}))
        for ids in (house, dict.fromkeys(house, ABSENT))
    )
    assert foreign.status_code == absent.status_code == 404
    assert foreign.json()["detail"] == absent.json()["detail"]


def named(body: dict[str, Any], ids: dict[str, str]) -> Any:
    """A body with ids in the place of their names."""
    text = json.dumps(body)
    for name, identifier in ids.items():
        text = text.replace(f"{{{name}}}", identifier)
    return json.loads(text)


PAGES = ("/datasets/{dataset_id}", "/datasets/{dataset_id}/new-job", "/jobs/{job_id}", "/jobs/{job_id}/report")


def test_pages_show_nothing_of_another_tenant(client: TestClient, services: Services, house: dict[str, str]) -> None:
    other = tenants.create(services.database, "other")
    for role, expected in ((Role.OWNER, 404), (Role.CONSUMER, 403)):
        visitor = browser(client, KeyRequest("stranger", tenant_id=other.id, role=role))
        for path in PAGES:
            assert visitor.get(path.format_map(house)).status_code == expected, path
        for path in ("/", "/jobs", "/releases"):
            reply = visitor.get(path)
            assert reply.status_code == (403 if (path, role) == ("/jobs", Role.CONSUMER) else 200)
            assert not any(identifier in reply.text for identifier in house.values())


def test_the_same_records_in_two_houses_do_not_meet(
    stranger: TestClient, services: Services, client: TestClient, dataset_id: str
) -> None:
    """An upload must not tell whether somebody else has the same record: the account is a new one."""
    reply = send_images(stranger, epsilon="3")
    assert reply.status_code == 201
    account = stranger.get(f"/v1/datasets/{reply.json()['id']}/privacy").json()
    assert (account["epsilon_limit"], account["linked_datasets"]) == (3, [])
    mine, theirs = (stored_dataset(services.database, one) for one in (dataset_id, reply.json()["id"]))
    assert mine.account_id != theirs.account_id
    assert client.get(f"/v1/datasets/{dataset_id}/privacy").json()["linked_datasets"] == []


def test_the_first_tenant_keeps_its_fingerprints() -> None:
    assert fingerprints.tenant_key(b"k" * 32, "default") == b"k" * 32
    assert fingerprints.tenant_key(b"k" * 32, "ten_1") not in (b"k" * 32, fingerprints.tenant_key(b"k" * 32, "ten_2"))


def test_tenants_do_not_meet_in_an_idempotency_key(stranger: TestClient, client: TestClient, dataset_id: str) -> None:
    mine = send_images(stranger).json()["id"]
    headers = {"Idempotency-Key": "k"}
    first = client.post("/v1/jobs", json=training(dataset_id), headers=headers)
    second = stranger.post("/v1/jobs", json=training(mine), headers=headers)
    assert (first.status_code, second.status_code) == (202, 202)
    assert stranger.post("/v1/jobs", json=training(mine), headers=headers).json()["id"] == second.json()["id"]


def test_a_role_reaches_its_operations_and_no_others(client: TestClient, house: dict[str, str]) -> None:
    for role in [Role.OPERATOR, Role.CONSUMER]:
        narrow = another_caller(client, KeyRequest("narrow", role=role))
        for name in operations():
            refused = call(narrow, name, dict.fromkeys(house, ABSENT)).status_code == 403
            assert refused == (RULES[name].scope not in SCOPES[role]), name


def test_a_consumer_gets_what_is_releasable_and_nothing_else(client: TestClient, house: dict[str, str]) -> None:
    partner = another_caller(client, KeyRequest("partner", role=Role.CONSUMER))
    base = f"/v1/jobs/{house['job_id']}"
    assert partner.get(f"{base}/synthetic", params={"format": "npz"}).status_code == 200
    assert partner.get(f"{base}/report", params={"audience": "releasable"}).status_code == 200
    assert partner.get(f"{base}/report").status_code == 403
    assert partner.get(f"{base}/bundle").status_code == 200
    shown = partner.get(f"{base}/artifacts").json()["items"]
    assert shown
    assert all(item["releasable"] for item in shown)
    every = client.get(f"{base}/artifacts").json()["items"]
    hidden = [item for item in every if not item["releasable"]]
    assert hidden
    for item in hidden:
        assert client.get(item["url"]).status_code == 200
        assert partner.get(item["url"]).status_code == 404


def test_a_key_can_be_narrowed_below_its_role(client: TestClient, house: dict[str, str]) -> None:
    narrow = another_caller(client, KeyRequest("looks", role=Role.OWNER, scopes=[Scope.JOBS_READ]))
    assert narrow.get("/v1/jobs").status_code == 200
    refused = narrow.get("/v1/datasets")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    assert "datasets:read" in refused.json()["detail"]
    reader = another_caller(client, KeyRequest("reads", role=Role.OWNER, scopes=[Scope.REPORTS_READ]))
    for path in ("/v1/audits", f"/v1/audits/{house['audit_id']}:cancel"):
        request = {"target": {"kind": "released", "job_id": house["job_id"]}}
        assert reader.post(path, json=request).status_code == 403, path


def test_the_description_names_the_scope_of_every_operation() -> None:
    for name, (_, _, operation) in operations().items():
        assert operation["x-scope"] == RULES[name].scope
        assert {"401", "403", "429"} <= operation["responses"].keys()
        assert json.dumps(operation["responses"]["429"]).count("Retry-After")
