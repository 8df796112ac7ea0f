"""What has ended leaves the pages that people work on, and can still be found."""

from datetime import UTC, datetime, timedelta

import pytest
from api_builders import arrays, bearer, browser, npz_of, send_images, training
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.store.access import identities, keys
from datalens_service.store.access.identities import Identity
from datalens_service.store.access.roles import SCOPES, Role
from datalens_service.store.schema.tables import DEFAULT_TENANT, ApiKeyRow

ADDED = "revoke-{}-dialog"


@pytest.fixture
def visitor(client: TestClient) -> TestClient:
    return browser(client)


def test_a_deleted_data_set_leaves_the_start_page_and_is_found_by_its_state(
    client: TestClient, visitor: TestClient, dataset_id: str
) -> None:
    place = f"/datasets/{dataset_id}"
    assert place in visitor.get("/").text
    assert "Deleted data sets" not in visitor.get("/").text
    client.delete(f"/v1{place}").raise_for_status()
    page = visitor.get("/").text
    assert place not in page
    assert "/?state=deleted" in page
    assert place in visitor.get("/", params={"state": "deleted"}).text
    assert place not in visitor.get("/", params={"search": "a"}).text
    assert "Receipt of the deletion" in visitor.get(place).text
    # Over REST a list says everything.
    assert [item["state"] for item in client.get("/v1/datasets").json()["items"]] == ["deleted"]


def test_a_start_page_is_not_filled_by_data_sets_that_are_gone(client: TestClient, visitor: TestClient) -> None:
    """The first page has the newest that are left, however many were deleted since."""
    kept = send_images(client).json()["id"]
    for number in range(26):
        gone = send_images(client, npz_of(**arrays(number + 1))).json()["id"]
        client.delete(f"/v1/datasets/{gone}").raise_for_status()
    assert f"/datasets/{kept}" in visitor.get("/").text


def test_jobs_are_not_filtered_by_a_deleted_data_set_unless_it_is_named(
    client: TestClient, visitor: TestClient, dataset_id: str
) -> None:
    job = client.post("/v1/jobs", json=training(dataset_id)).json()
    client.post(job["links"]["cancel"])
    option = f'<option value="{dataset_id}"'
    assert option in visitor.get("/jobs").text
    client.delete(f"/v1/datasets/{dataset_id}").raise_for_status()
    assert option not in visitor.get("/jobs").text
    assert f"{option} selected" in visitor.get("/jobs", params={"dataset": dataset_id}).text
    assert "deleted; its budget stays" in visitor.get("/datasets/new").text


def test_keys_that_have_ended_leave_the_page_of_keys(
    client: TestClient, visitor: TestClient, services: Services
) -> None:
    names = ("revoked key", "expired key", "working key")
    for name in names:
        bearer(client, name)
    ids = {key.name: key.id for key in keys.list_keys(services.database)}
    keys.revoke(services.database, ids["revoked key"])
    with services.database.transaction() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == ids["expired key"]).values(expires_at=past))
    working, ended = visitor.get("/keys").text, visitor.get("/keys", params={"ended": "true"}).text
    assert [name in working for name in names] == [False, False, True]
    assert [name in ended for name in names] == [True, True, False]
    assert "2 revoked or expired" in working


def test_persons_who_may_come_back_can_be_revoked_when_their_session_has_ended(
    visitor: TestClient, services: Services
) -> None:
    person = Identity("https://id", "maria", "Maria", DEFAULT_TENANT, Role.OPERATOR, SCOPES[Role.OPERATOR])
    key_id = identities.sign_in(services.database, person).key.id
    assert ADDED.format(key_id) in visitor.get("/keys").text
    with services.database.transaction() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key_id).values(expires_at=past))
    assert ADDED.format(key_id) not in visitor.get("/keys").text
    assert ADDED.format(key_id) in visitor.get("/keys", params={"ended": "true"}).text
    keys.revoke(services.database, key_id)
    assert ADDED.format(key_id) not in visitor.get("/keys", params={"ended": "true"}).text
