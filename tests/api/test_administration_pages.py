"""Webhooks, audit journal and usage as pages: what stands there, and who may see it."""

import html
import re
from datetime import timedelta

import pytest
from api_builders import sign_in
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.base.clock import utc_now
from datalens_service.store.access import access_log, keys, tenants, webhooks
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.schema.tables import DEFAULT_TENANT, ApiKeyRow

ADDRESS = "https://hooks.example.org/in"
HOSTILE = "https://hooks.example.org/?<script>alert(1)</script>"


@pytest.fixture
def owner(client: TestClient) -> TestClient:
    sign_in(client, "Maria")
    return client


def test_keys_are_listed_with_their_state_and_without_what_opens_the_door(
    owner: TestClient, services: Services
) -> None:
    hostile, plain = keys.create(services.database, KeyRequest("<script>alert(1)</script>", role=Role.CONSUMER))
    past = utc_now() - timedelta(days=1)
    old, _ = keys.create(services.database, KeyRequest("old"))
    with services.database.transaction() as session:
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == old.id).values(expires_at=past))
    revoked = keys.create(services.database, KeyRequest("gone"))[0]
    keys.revoke(services.database, revoked.id)
    page = owner.get("/keys").text + owner.get("/keys?ended=true").text
    assert "<script>alert" not in page
    assert f"DELETE /v1/api-keys/{hostile.id}" in page
    assert f"DELETE /v1/api-keys/{revoked.id}" not in page
    assert plain not in page
    text = re.sub(r"<[^>]+>", " ", page)
    assert all(word in text for word in ("Maria (yours)", "Valid", "Expired", "Revoked", "consumer", "never"))


def test_webhooks_are_listed_without_their_secrets(owner: TestClient, services: Services) -> None:
    hook, secret = webhooks.create(services.database, DEFAULT_TENANT, HOSTILE, ["job.succeeded", "job.lease_lost"])
    for path in ("/webhooks", f"/webhooks/{hook.id}"):
        page = owner.get(path).text
        assert html.escape(HOSTILE) in page
        assert "<script>alert" not in page
        assert "lease lost, succeeded" in page
        assert secret.removeprefix("whsec_") not in html.unescape(page)


def test_deliveries_say_what_came_of_them(owner: TestClient, services: Services) -> None:
    hook, _ = webhooks.create(services.database, DEFAULT_TENANT, ADDRESS, ["job.succeeded"])
    assert "Nothing was sent yet" in owner.get(f"/webhooks/{hook.id}").text
    delivery = webhooks.send_test(services.database, hook.id)
    webhooks.settle(services.database, delivery.id, status=500, error="The answer was 500.")
    page = owner.get(f"/webhooks/{hook.id}").text
    assert all(text in page for text in ("webhook.test", "Pending", "The answer was 500.", f"{delivery.id}:redeliver"))


def test_a_new_secret_signs_what_waits_and_the_old_one_is_gone(client: TestClient, services: Services) -> None:
    hook, old = webhooks.create(services.database, DEFAULT_TENANT, ADDRESS, ["job.succeeded"])
    answer = client.post(f"/v1/webhooks/{hook.id}:rotate-secret")
    assert (answer.status_code, answer.json()["webhook"]["id"]) == (200, hook.id)
    webhooks.send_test(services.database, hook.id)
    (claimed,) = webhooks.claim_due(services.database)
    assert claimed.secret == answer.json()["secret"] != old
    assert access_log.list_latest(services.database, DEFAULT_TENANT)[0][0].action == "rotateWebhookSecret"


def test_the_journal_names_people_and_pages_backwards(owner: TestClient, services: Services) -> None:
    maria = next(key.id for key in keys.list_keys(services.database) if key.name == "Maria")
    for actor in [*["local"] * 60, maria]:
        access_log.note(services.database, DEFAULT_TENANT, actor=actor, action="x", object_id=None, outcome=404)
    page = owner.get("/journal").text
    assert all(text in page for text in ("Maria", "404", "before=12"))
    older = owner.get("/journal?before=12").text
    assert ">11</td>" in older
    assert ">12</td>" not in older
    assert "before=" not in older
    assert owner.get("/journal?before=0").status_code == 422
    assert re.search(r'<time datetime="[^"]+" data-utc>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC</time>', page)


def test_the_journal_of_another_tenant_is_not_there(client: TestClient, services: Services) -> None:
    access_log.note(
        services.database, DEFAULT_TENANT, actor="local", action="deedOfOthers", object_id=None, outcome=200
    )
    hook, _ = webhooks.create(services.database, DEFAULT_TENANT, ADDRESS, ["job.succeeded"])
    sign_in(client, KeyRequest("stranger", tenants.create(services.database, "elsewhere").id))
    assert "deedOfOthers" not in client.get("/journal").text
    assert ADDRESS not in client.get("/webhooks").text
    assert client.get(f"/webhooks/{hook.id}").status_code == 404


def test_usage_has_what_the_resource_has(owner: TestClient) -> None:
    page = owner.get("/usage").text
    assert re.search(r"<dt>Keys that work</dt><dd>2</dd>", page)
    assert owner.get("/v1/usage").json()["api_keys"] == 2


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.OWNER, {"/keys", "/webhooks", "/journal", "/usage"}),
        (Role.OPERATOR, {"/webhooks", "/usage"}),
        (Role.CONSUMER, set()),
    ],
)
def test_pages_and_links_reach_as_far_as_the_role(client: TestClient, role: Role, allowed: set[str]) -> None:
    sign_in(client, KeyRequest("visitor", role=role))
    for path in ("/keys", "/webhooks", "/journal", "/usage"):
        answer = client.get(path)
        assert answer.status_code == (200 if path in allowed else 403)
        links = set(re.findall(r'href="(/(?:keys|webhooks|journal|usage))"', answer.text))
        assert links == allowed if path in allowed else links <= allowed


def test_keys_say_when_they_were_last_noted(client: TestClient, services: Services) -> None:
    quiet, _ = keys.create(services.database, "quiet")
    client.delete("/v1/webhooks/wh_none")
    noted = {key["id"]: key["last_noted_at"] for key in client.get("/v1/api-keys").json()["items"]}
    assert noted.pop(quiet.id) is None
    assert [moment is not None for moment in noted.values()] == [True]
