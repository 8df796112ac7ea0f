"""Between reading an upload and opening its budget: its owner sees the class names, and nobody else anything."""

import json
from typing import Any

import numpy as np
import pytest
from api_builders import CONFIRMED, another_caller, arrays, bearer, browser, npz, send_images, training, zipped
from PIL import Image
from sqlalchemy import select
from starlette.testclient import TestClient
from test_validation import register, settled

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base import logs
from datalens_service.base.settings import Settings
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.schema.tables import Base
from tests.data.builders import encoded

SECRET = "kind-of-mark-"  # noqa: S105
PATIENTS = 5
WAITING: dict[str, Any] = {"confirm_classes": None}
YES = {"confirm_classes": True}
WAYS = ("in one request", "in pieces")


def by_patient(seed: int = 0, prefix: str = SECRET) -> bytes:
    """Folders of persons, which read as class folders; one image of each to test on, and a split that is ignored."""
    rng, files = np.random.default_rng(seed), {}
    for number in range(4 * PATIENTS):
        image = encoded(Image.fromarray(rng.integers(0, 256, (8, 6), dtype=np.uint8)))
        files[f"{'test' if number < PATIENTS else 'train'}/{prefix}{number % PATIENTS}/{number}.png"] = image
    return zipped({**files, f"val/{prefix}0/unused.png": image})


def waiting(client: TestClient, way: str = WAYS[0], content: bytes | None = None, **form: Any) -> str:
    """Id of an upload in review."""
    content = by_patient() if content is None else content
    if way == "in pieces":
        dataset_id = register(client, content, **{**WAITING, **form})
        assert settled(client, dataset_id)["state"] == "review"
        return dataset_id
    reply = client.post("/v1/datasets", files={"file": content}, data={"epsilon": "10", **form})
    assert (reply.status_code, reply.json()["state"]) == (202, "review"), reply.text
    assert "Retry-After" not in reply.headers
    return str(reply.json()["id"])


def confirm(client: TestClient, dataset_id: str, **named: Any) -> Any:
    return client.post(f"/v1/datasets/{dataset_id}:confirm", json={**YES, **named})


def as_role(client: TestClient, role: Role) -> TestClient:
    return another_caller(client, KeyRequest(role.value, role=role))


def test_the_answer_to_an_upload_shows_what_there_is_to_confirm(client: TestClient) -> None:
    reply = client.post("/v1/datasets", files={"file": by_patient()}, data={"epsilon": "10", "name": "Scans"})
    body = reply.json()
    assert (reply.status_code, body["state"], body["name"]) == (202, "review", "Scans")
    assert reply.headers["Location"] == f"/v1/datasets/{body['id']}"
    assert (reply.headers["Cache-Control"], reply.headers["X-Datalens-Audience"]) == ("private, no-store", "owner")
    assert (body["schema"], body["format"], body["privacy"], body["joined"]) == (None, None, None, None)
    review = body["review"]
    assert review["classes"] == [{"name": f"{SECRET}{number}", "train": 3, "test": 1} for number in range(PATIENTS)]
    assert (review["unit"], review["num_units"], review["records_per_unit"]) == ("record", 15, 1)
    assert (review["width"], review["height"], review["channels"]) == (6, 8, 1)
    assert (review["train_images"], review["test_images"], review["test_is_public"]) == (15, 5, False)
    assert review["ignored_files"] == 1
    assert "public for good" in review["message"]
    assert [notice["code"] for notice in body["notices"]] == ["ignored_split"]
    report = client.get(f"/v1/datasets/{body['id']}/validation").json()
    assert (report["state"], report["review"], report["notices"]) == ("review", review, body["notices"])


@pytest.mark.parametrize("way", WAYS)
def test_an_upload_waits_and_its_confirmation_opens_the_budget(
    client: TestClient, services: Services, way: str
) -> None:
    dataset_id = waiting(client, way)
    assert _rows(services) == {"intakes"}
    reply = confirm(client, dataset_id)
    assert (reply.status_code, reply.headers["Cache-Control"]) == (200, "private, no-store")
    body = reply.json()
    assert (body["state"], body["format"], body["review"]) == ("ready", "image_folder", None)
    assert body["schema"]["class_names"] == [f"{SECRET}{number}" for number in range(PATIENTS)]
    assert (body["has_test_split"], body["privacy"]["epsilon_limit"]) == (True, 10)
    assert [notice["code"] for notice in body["notices"]] == ["ignored_split"]
    assert confirm(client, dataset_id).json() == body
    report = client.get(f"/v1/datasets/{dataset_id}/validation").json()
    assert (report["state"], report["review"], report["counts"]["train"]) == ("ready", None, 15)
    assert client.post("/v1/plans", json=training(dataset_id)).status_code == 200


def _rows(services: Services) -> set[str]:
    """Tables that an upload may leave something in."""
    watched = ("intakes", "datasets", "accounts", "ledger_entries", "record_fingerprints", "job_events", "reservations")
    with services.database.connection() as connection:
        return {name for name in watched if connection.execute(select(Base.metadata.tables[name])).first()}


@pytest.mark.parametrize("way", WAYS)
def test_names_that_are_declared_or_confirmed_with_the_upload_open_it_at_once(client: TestClient, way: str) -> None:
    names = ",".join("abcde")
    for seed, form in enumerate(({"class_names": names}, {"confirm_classes": True})):
        given = {name: str(value).lower() for name, value in form.items()}
        if way == "in pieces":
            dataset_id = register(client, by_patient(seed), **{**WAITING, **form})
            assert settled(client, dataset_id)["state"] == "ready"
            continue
        reply = client.post("/v1/datasets", files={"file": by_patient(seed)}, data={"epsilon": "10", **given})
        assert (reply.status_code, reply.json()["state"], reply.json()["review"]) == (201, "ready", None)
    assert send_images(client, by_patient(7), confirm_classes="false").json()["state"] == "review"


def test_public_records_wait_as_well(client: TestClient) -> None:
    dataset_id = waiting(client, public_records="true")
    assert client.get(f"/v1/datasets/{dataset_id}/validation").json()["review"]["records_are_public"]
    assert confirm(client, dataset_id).json()["schema"]["records_are_public"]


NO = [
    *({"confirm_classes": value} for value in (False, None, 1, "true")),
    *({}, [True], {**YES, "classes": ["a"]}, {**YES, "epsilon": "3"}),
]


def test_only_a_literal_yes_confirms(client: TestClient) -> None:
    dataset_id = waiting(client)
    twice = b'{"confirm_classes": false, "confirm_classes": true}'
    for content in (*(json.dumps(body).encode() for body in NO), b"", b"{", twice):
        headers = {"Content-Type": "application/json"}
        reply = client.post(f"/v1/datasets/{dataset_id}:confirm", content=content, headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (422, "invalid-input"), content
    assert client.get(f"/v1/datasets/{dataset_id}").json()["state"] == "review"


def test_known_records_are_told_at_the_confirmation_which_may_name_their_budget(client: TestClient) -> None:
    first = send_images(client, by_patient(), epsilon="3").json()
    again = waiting(client)
    assert client.get(f"/v1/datasets/{again}/validation").json()["joined"] is None
    refused = confirm(client, again)
    assert (refused.status_code, refused.json()["epsilon"]) == (409, 3)
    assert client.get(f"/v1/datasets/{first['id']}/privacy").json()["linked_datasets"] == []
    unknown = confirm(client, again, shares_budget_with="ds_unknown")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not-found")
    joined = confirm(client, again, epsilon=None)
    assert (joined.status_code, joined.json()["joined"]["dataset_ids"]) == (200, [first["id"]])
    assert "shares_records" in [notice["code"] for notice in joined.json()["notices"]]
    changed = confirm(client, again, epsilon=5)
    assert (changed.status_code, changed.json()["code"]) == (409, "state-conflict")


@pytest.mark.parametrize("member", ["shares_budget_with", "account"])
def test_who_pays_may_be_named_as_clients_of_before_name_it(client: TestClient, member: str) -> None:
    def upload(seed: int, **form: Any) -> Any:
        content = npz(images=arrays(seed)["images"])
        return client.post("/v1/datasets", files={"file": content}, data={**CONFIRMED, **form})

    first = upload(0, epsilon="3").json()["id"]
    second = upload(1, **{member: first}).json()["id"]
    declared = client.post("/v1/datasets", files={"file": by_patient(2)}, data={member: first}).json()["id"]
    named = waiting(client, content=by_patient(3))
    assert confirm(client, declared).status_code == 200
    assert confirm(client, named, **{member: first}).status_code == 200
    linked = client.get(f"/v1/datasets/{first}/privacy").json()["linked_datasets"]
    assert sorted(linked) == sorted([second, declared, named])
    assert upload(4, shares_budget_with=first, account=first).status_code == 422


def test_what_needs_a_budget_says_that_the_upload_waits(client: TestClient) -> None:
    dataset_id = waiting(client)
    asked = [client.post(path, json=training(dataset_id)) for path in ("/v1/plans", "/v1/jobs")]
    asked += [client.get(f"/v1/datasets/{dataset_id}/{part}") for part in ("privacy", "privacy/entries", "preview")]
    asked.append(client.patch(f"/v1/datasets/{dataset_id}", json={"name": "Other"}))
    asked.append(client.post(f"/v1/datasets/{dataset_id}/privacy:raise", json={"epsilon": 11, "reason": "More work."}))
    opened = send_images(client, epsilon="1").json()["id"]
    holdout = {"evaluation": {"enabled": True, "holdout": dataset_id}}
    asked.append(client.post("/v1/plans", json=training(opened, **holdout)))
    for reply in asked:
        assert (reply.status_code, reply.json()["code"]) == (409, "state-conflict"), reply.url
        assert "waits for the confirmation of its class names" in reply.json()["detail"]
        assert "/v1/datasets/{dataset_id}:confirm" in reply.json()["detail"]


def test_there_is_nothing_to_confirm_of_other_states(client: TestClient) -> None:
    gone = waiting(client)
    receipt = client.delete(f"/v1/datasets/{gone}").json()
    assert (receipt["account_id"], receipt["removed"]) == (None, ["the upload", "the report on it"])
    unusable = register(client, b"nothing of the kind" * 9)
    settled(client, unusable)
    for dataset_id, state in ((gone, "deleted"), (unusable, "invalid")):
        reply = confirm(client, dataset_id)
        assert (reply.status_code, reply.json()["code"]) == (409, "state-conflict")
        assert state in reply.json()["detail"]
    assert confirm(client, "ds_unknown").status_code == 404


def test_it_waits_through_a_restart(settings: Settings) -> None:
    with TestClient(create_app(settings), base_url="http://service") as http:
        http.headers.update(bearer(http))
        dataset_id = waiting(http)
    with TestClient(create_app(settings), base_url="http://service", headers=http.headers) as again:
        assert again.get(f"/v1/datasets/{dataset_id}").json()["state"] == "review"
        assert confirm(again, dataset_id).json()["state"] == "ready"


def test_nothing_of_a_review_is_told_to_anybody_else(
    client: TestClient, services: Services, capfd: pytest.CaptureFixture[str]
) -> None:
    logs.configure("debug")
    ids = [waiting(client, way, by_patient(seed)) for seed, way in enumerate(WAYS)]
    shown = [client.get(path).text for path in ("/v1/datasets", "/v1/audit", "/v1/usage", "/metrics", "/v1/jobs")]
    for role in (Role.OPERATOR, Role.CONSUMER):
        other = as_role(client, role)
        for dataset_id in ids:
            assert other.get(f"/v1/datasets/{dataset_id}/validation").status_code == 403
            assert confirm(other, dataset_id).status_code == 403
            shown += [other.get(f"/v1/datasets/{dataset_id}{part}").text for part in ("", "/privacy", "/preview")]
            shown.append(other.post("/v1/plans", json=training(dataset_id)).text)
        shown.append(other.get("/v1/datasets").text)
    listed = as_role(client, Role.OPERATOR).get("/v1/datasets").json()["items"]
    assert [(item["id"], item["state"]) for item in listed] == [(one, "review") for one in reversed(ids)]
    told = [{name for name, value in item.items() if value} for item in listed]
    assert told == [{"id", "name", "state", "created_at"}] * 2
    logged = capfd.readouterr()
    assert SECRET not in "".join([*shown, logged.out, logged.err])
    with services.database.connection() as connection:
        for table in Base.metadata.sorted_tables:
            rows = "".join(str(row) for row in connection.execute(select(table)))
            assert (SECRET in rows) == (table.name == "intakes"), table.name


def test_others_see_the_same_of_two_uploads_that_differ_in_everything(client: TestClient) -> None:
    operator, told = as_role(client, Role.OPERATOR), []
    for content in (by_patient(), by_patient(5, "ward "), npz()):
        dataset_id = waiting(client, content=content)
        paths = ("", "/privacy", "/validation", "/preview")
        seen = [operator.get(f"/v1/datasets/{dataset_id}{path}") for path in paths]
        seen += [operator.post("/v1/jobs", json=training(dataset_id)), operator.get("/v1/datasets")]
        told.append([_without_moments(reply.json(), dataset_id) for reply in seen])
        client.delete(f"/v1/datasets/{dataset_id}")
    assert told[0] == told[1] == told[2]


def _without_moments(body: Any, dataset_id: str) -> Any:
    """An answer without what is new every time."""
    plain = json.loads(json.dumps(body).replace(dataset_id, "ds"))
    for one in [plain, *plain.get("items", [])]:
        for name in ("instance", "created_at"):
            one.pop(name, None)
    return plain


def test_the_page_of_a_review_is_for_who_may_upload(client: TestClient) -> None:
    dataset_id = waiting(client, name="<script>alert(1)</script>")
    for role, status in ((Role.OWNER, 200), (Role.OPERATOR, 403)):
        visitor = browser(client, KeyRequest(role.value, role=role))
        page = visitor.get(f"/datasets/{dataset_id}")
        assert (page.status_code, f"{SECRET}0" in page.text) == (status, status == 200)
        assert "<script>alert" not in page.text
        overview = visitor.get("/").text
        assert "Waits for confirmation" in overview
        assert SECRET not in overview
        assert visitor.get(f"/datasets/{dataset_id}/new-job").status_code == 409
