"""Releases in words, and links of one partner to one release: what they open, when they end, and what they tell."""

import io
import json
import re
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from api_builders import a_classifier, another_caller, bearer, browser, released, report
from sqlalchemy import text, update
from starlette.testclient import TestClient

from datalens_service.api.application import _TELEMETRY
from datalens_service.api.deps import Services
from datalens_service.api.security import rate_limits
from datalens_service.base.settings import Settings
from datalens_service.report.summary import summarize_release
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.release_links import verify
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs import released_models
from datalens_service.store.schema.service_tables import ReleaseLinkRow

SECRET = re.compile(r"/shared/[0-9A-Za-z]{36}")


@pytest.fixture
def job_id(client: TestClient, dataset_id: str, tmp_path: Path) -> str:
    return released(client, tmp_path, dataset_id)


@pytest.fixture
def release_id(job_id: str) -> str:
    return released_models.build_id(job_id)


def made(client: TestClient, release_id: str, **members: Any) -> dict[str, Any]:
    reply = client.post(f"/v1/releases/{release_id}/links", json={"partner": "Northern Clinic", **members})
    assert reply.status_code == 201, reply.text
    found: dict[str, Any] = reply.json()
    return found


def partner(client: TestClient, accept: str = "text/html", place: int = 1) -> TestClient:
    """Somebody without key and session, at an address of their own."""
    address = (f"192.0.2.{place}", 5000)
    return TestClient(client.app, base_url="http://service", headers={"Accept": accept}, client=address)


def journal(client: TestClient) -> list[tuple[str, str, str]]:
    items = client.get("/v1/audit").json()["items"]
    return [(item["actor"], item["action"], item["object_id"]) for item in items]


def test_a_release_says_what_it_is_and_what_it_promises(client: TestClient, release_id: str, job_id: str) -> None:
    shown = client.get(f"/v1/releases/{release_id}").json()
    assert client.get("/v1/releases").json()["items"] == [shown]
    assert shown["title"] == "Images of 4 classes, 8 × 8 pixels"
    assert shown["class_names"] == ["0", "1", "2", "3"]
    assert shown["made"].startswith("These images are synthetic: a generator drew them. It learned from the private")
    assert "a coin gets 50" in shown["promise"]
    assert client.get(shown["links"]["samples"]).status_code == 200
    assert client.get(shown["links"]["report"]).status_code == 200
    assert client.get(shown["links"]["job"]).json()["id"] == job_id


def test_a_title_is_what_the_owner_typed_for_others_and_never_the_name_of_the_job(
    client: TestClient, release_id: str, job_id: str
) -> None:
    client.patch(
        f"/v1/jobs/{job_id}", json={"name": "Mrs Jones, ward 7", "notes": "secret-note", "tags": ["secret-tag"]}
    )
    link = made(client, release_id)
    changes = {"title": "Blood cells", "license": "CC-BY-4.0"}
    assert client.patch(f"/v1/releases/{release_id}", json=changes).json()["title"] == "Blood cells"
    seen = [partner(client).get(link["url"]).text, client.get("/v1/releases").text, client.get("/v1/generators").text]
    assert "<h1>Blood cells</h1>" in seen[0]
    assert "CC-BY-4.0" in seen[0]
    for page in seen:
        assert not re.search("Jones|secret-note|secret-tag|Northern Clinic", page)
    assert client.patch(f"/v1/releases/{release_id}", json={"license": "GPL"}).status_code == 422
    assert client.patch(f"/v1/releases/{release_id}", json={"title": ""}).json()["title"].startswith("Images of 4")
    assert client.get(f"/v1/releases/{release_id}").json()["license"] == "CC-BY-4.0"


def test_a_link_opens_one_release_and_all_of_it(client: TestClient, release_id: str, job_id: str) -> None:
    link, nobody = made(client, release_id), partner(client)
    assert SECRET.fullmatch(link["url"])
    page = nobody.get(link["url"])
    assert page.status_code == 200
    assert len(re.findall(r"^datalens verify .+zip", page.text, re.MULTILINE)) == 2
    names = re.findall(rf'href="{link["url"]}/files/([^"]+)"', page.text)
    assert {"report-releasable.html", "privacy.json", "generator.safetensors"} <= set(names)
    assert all(nobody.get(f"{link['url']}/files/{name}").status_code == 200 for name in [*names, "samples.png"])
    drawn = nobody.get(f"{link['url']}/images", params={"format": "npz", "synthetic_images": 7})
    assert drawn.status_code == 200
    assert nobody.get(f"/v1/jobs/{job_id}/synthetic").status_code == 401
    assert nobody.get(f"/v1/releases/{release_id}").status_code == 401


def test_an_archive_has_the_title_and_the_licence_of_the_owner(
    client: TestClient, dataset_id: str, tmp_path: Path, services: Services
) -> None:
    # Its card has to be complete for this.
    job_id = a_classifier(client, services, dataset_id)
    release_id = released_models.build_id(job_id, "classifier")
    client.patch(f"/v1/releases/{release_id}", json={"license": "CC0-1.0"})
    link = made(client, release_id)
    page = partner(client).get(link["url"]).text
    assert "Download images" not in page
    archive = partner(client).get(f"{link['url']}/archive")
    assert archive.headers["Content-Disposition"].endswith(f'"{release_id}.zip"')
    with zipfile.ZipFile(io.BytesIO(archive.content)) as opened:
        assert b"CC0-1.0" in opened.read("LICENSE")
    refused = partner(client, "*/*").get(f"{link['url']}/images")
    assert (refused.status_code, refused.json()["code"]) == (409, "state-conflict")


def test_a_link_gives_nothing_that_is_for_the_owner(client: TestClient, release_id: str, job_id: str) -> None:
    link = made(client, release_id)
    files = client.get(f"/v1/jobs/{job_id}/artifacts").json()["items"]
    private = [file["name"] for file in files if not file["releasable"]]
    assert "report.json" in private
    for name in private:
        assert partner(client, "*/*").get(f"{link['url']}/files/{name}").status_code == 404, name


def test_wrong_ended_and_revoked_links_are_the_same_404(
    client: TestClient, services: Services, release_id: str
) -> None:
    revoked, expired, of_a_lost_key = (made(client, release_id) for _ in range(3))
    assert partner(client).get(expired["url"]).status_code == 200
    client.delete(f"/v1/release-links/{revoked['link']['id']}")
    past = datetime.now(UTC) - timedelta(seconds=1)
    with services.database.transaction() as session:
        session.execute(
            update(ReleaseLinkRow).where(ReleaseLinkRow.id == expired["link"]["id"]).values(expires_at=past)
        )
    wrong = [f"/shared/{'x' * 36}", f"{of_a_lost_key['url']}x", of_a_lost_key["url"][:-1], "/shared/%00", "/shared/é"]
    answers = []
    for place, url in enumerate([revoked["url"], expired["url"], *wrong]):
        for path in ("", "/archive", "/images", "/files/samples.png"):
            reply = partner(client, "application/json", place).get(f"{url}{path}")
            document = reply.json()
            assert document.pop("instance")
            answers.append((reply.status_code, document))
            assert partner(client, place=place).get(f"{url}{path}").status_code == 404
    assert answers == [answers[0]] * len(answers)
    assert (answers[0][0], answers[0][1]["code"]) == (404, "not-found")


def test_a_link_ends_with_the_key_that_made_it_when_that_is_revoked_and_not_when_it_is_replaced(
    client: TestClient, release_id: str
) -> None:
    key = client.post("/v1/api-keys", json={"name": "colleague", "role": "operator"}).json()
    colleague = TestClient(client.app, base_url="http://service", headers={"Authorization": f"Bearer {key['api_key']}"})
    link = made(colleague, release_id)
    client.post(f"/v1/api-keys/{key['key']['id']}:rotate", json={"overlap_seconds": 0})
    assert colleague.get("/v1/releases").status_code == 401
    assert partner(client).get(link["url"]).status_code == 200
    client.delete(f"/v1/api-keys/{key['key']['id']}")
    assert partner(client).get(link["url"]).status_code == 404
    [listed] = client.get(f"/v1/releases/{release_id}/links").json()["items"]
    assert (listed["ended"], listed["revoked_at"], listed["key_id"]) == (True, None, key["key"]["id"])


def test_what_is_done_with_a_link_is_in_the_journal(client: TestClient, release_id: str) -> None:
    before = len(journal(client))
    link = made(client, release_id)
    nobody, link_id = partner(client), link["link"]["id"]
    nobody.get(link["url"])
    nobody.get(f"{link['url']}/files/samples.png")
    nobody.get(f"{link['url']}/files/privacy.json")
    nobody.get(f"{link['url']}/images", params={"format": "npz"})
    client.delete(f"/v1/release-links/{link_id}")
    nobody.get(link["url"])
    owner = journal(client)[before][0]
    assert journal(client)[before:] == [
        (owner, "createReleaseLink", release_id),
        (link_id, "openReleaseLink", release_id),
        (link_id, "downloadByReleaseLink", release_id),
        (link_id, "downloadByReleaseLink", release_id),
        (owner, "revokeReleaseLink", link_id),
    ]
    [listed] = client.get(f"/v1/releases/{release_id}/links").json()["items"]
    assert listed["last_used_at"] is not None
    assert client.get(f"/v1/release-links/{link_id}").json()["partner"] == "Northern Clinic"


def test_the_secret_is_kept_nowhere(
    client: TestClient, services: Services, release_id: str, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    link = made(client, release_id)
    secret = link["url"].removeprefix("/shared/")
    assert partner(client).get(link["url"]).status_code == 200
    assert partner(client).get(f"{link['url']}/files/privacy.json").status_code == 200
    assert verify(services.database, secret).id == link["link"]["id"]
    kept = [path for path in settings.data_dir.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert kept == []
    assert secret not in client.get("/v1/audit").text
    heard = capsys.readouterr()
    assert secret not in heard.out + heard.err
    assert _TELEMETRY["exclude"]({"type": "http", "path": link["url"]})
    with services.database.session() as session:
        stored = session.execute(text("SELECT sha256 FROM release_links")).scalar_one()
    assert len(stored) == 64


def test_no_answer_to_a_link_tells_others_its_address(client: TestClient, release_id: str) -> None:
    url = made(client, release_id)["url"]
    for path in (
        "",
        "/files/samples.png",
        "/files/nothing.txt",
        "/images?format=npz",
        "/images?format=bmp",
        "x",
        "/a/b",
    ):
        for accept in ("text/html", "*/*"):
            headers = partner(client, accept).get(f"{url}{path}").headers
            assert headers["Referrer-Policy"] == "no-referrer", path
            assert headers["Cache-Control"] == "private, no-store", path
            assert "noindex" in headers["X-Robots-Tag"], path
    assert "X-Robots-Tag" not in client.get("/v1/releases").headers


def test_an_address_that_tries_links_is_held_up_and_right_links_are_not(
    client: TestClient, services: Services, release_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = services.settings.model_copy(update={"wrong_keys_per_minute": 1})
    monkeypatch.setattr(services.limits, "_settings", few)
    url = made(client, release_id)["url"]
    replies = [partner(client, "*/*").get(f"/shared/{number:036}") for number in range(3)]
    assert [reply.status_code for reply in replies] == [404, 429, 429]
    assert replies[-1].json()["code"] == "rate-limited"
    assert partner(client).get(url).status_code == 200


def test_a_link_that_is_used_too_often_is_told_to_wait(
    client: TestClient, release_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_LINK_REQUESTS_PER_MINUTE", 1)
    url, other = (made(client, release_id)["url"] for _ in range(2))
    replies = [partner(client, "*/*").get(f"{url}/files/samples.png") for _ in range(2)]
    assert [reply.status_code for reply in replies] == [200, 429]
    assert "This link may send 1 requests" in replies[-1].json()["detail"]
    assert partner(client).get(other).status_code == 200


def test_a_link_is_for_those_who_may_write_releases_and_for_what_a_job_made(
    client: TestClient, services: Services, release_id: str, job_id: str
) -> None:
    reader = another_caller(client, KeyRequest("reader", role=Role.CONSUMER))
    assert reader.get(f"/v1/releases/{release_id}").status_code == 200
    assert reader.post(f"/v1/releases/{release_id}/links", json={"partner": "x"}).status_code == 403
    assert reader.get(f"/v1/releases/{release_id}/links").status_code == 403
    file = client.get(f"/v1/jobs/{job_id}/generator").content
    imported = client.post("/v1/generators", files={"file": file}).json()["id"]
    refused = client.post(f"/v1/releases/{imported}/links", json={"partner": "x"})
    assert (refused.status_code, refused.json()["code"]) == (409, "state-conflict")
    shown = client.get(f"/v1/releases/{imported}").json()
    assert (shown["guarantee"], shown["made"], shown["links"]["archive"]) == ("", "", None)
    late = client.post(f"/v1/releases/{release_id}/links", json={"partner": "x", "expires_at": "2020-01-01T00:00:00Z"})
    assert (late.status_code, "expires_at" in late.json()["detail"]) == (422, True)
    assert client.post(f"/v1/releases/{release_id}/links", json={"partner": " "}).status_code == 422


def test_a_session_changes_nothing_for_a_partner(client: TestClient, release_id: str) -> None:
    url = made(client, release_id)["url"]
    signed_in = browser(client, KeyRequest("visitor", role=Role.OWNER))
    owners, partners = (re.sub(r"<time.*?</time>", "", one.get(url).text) for one in (signed_in, partner(client)))
    assert owners == partners
    assert "form-token" not in owners


def test_only_the_report_for_others_describes_a_release() -> None:
    with pytest.raises(ValueError, match="for others"):
        summarize_release(json.loads(report("owner")))
    assert summarize_release(json.loads(report("releasable"))).usefulness


def test_pages_share_a_release(client: TestClient, release_id: str) -> None:
    made(client, release_id)
    visitor = browser(client)
    assert f"/releases/{release_id}/links" in visitor.get("/releases").text
    assert "Northern Clinic" in visitor.get(f"/releases/{release_id}/links").text
    consumer = browser(client, KeyRequest("consumer", role=Role.CONSUMER))
    assert f"/releases/{release_id}/links" not in consumer.get("/releases").text
    assert consumer.get(f"/releases/{release_id}/links").status_code == 403
    assert bearer(client)
