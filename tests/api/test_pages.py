"""The pages as a visitor gets them: each in each of its states, and nothing in them that is not theirs to show."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from api_builders import CONFIRMED, arrays, claimed, journal, npz, send_images, sign_in, succeed, training
from sqlalchemy import update
from starlette.testclient import TestClient
from test_validation import register, settled

from datalens_service.api.deps import Services
from datalens_service.api.pages.views.journal import _MEANINGS, build_table
from datalens_service.api.pages.views.planning import read_form
from datalens_service.api.pages.views.rendering import _templates
from datalens_service.api.security.browser_sessions import FORM_TOKEN_HEADER
from datalens_service.proof.hash_chain import EntryKind
from datalens_service.store.access import keys
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.events import EventType
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.journal_pages import read_slice
from datalens_service.store.schema.tables import ArtifactRow
from example_proof import EXAMPLE_PROOF

HOSTILE = '<script>alert("x")</script> & "name"'


@pytest.fixture
def visitor(client: TestClient, dataset_id: str) -> TestClient:
    """A signed-in browser on a service with one data set."""
    assert dataset_id
    sign_in(client)
    page = client.get("/").text
    client.headers[FORM_TOKEN_HEADER] = re.search(r'name="form-token" content="([\w-]+)"', page)[1]
    return client


def submit(visitor: TestClient, dataset_id: str, **spec: Any) -> str:
    answer = visitor.post("/v1/jobs", json=training(dataset_id, **spec))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def plan(visitor: TestClient, dataset_id: str, **form: str) -> str:
    filled = {"preset": "fast", "epsilon": "1", "seed": "0", "synthetic_images": "40", "method": "", **form}
    return str(visitor.post(f"/datasets/{dataset_id}/plan", json=filled).text)


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def test_an_empty_service_says_what_to_do_first(client: TestClient) -> None:
    sign_in(client)
    assert "Upload your first data set" in client.get("/").text
    assert "No jobs yet" in client.get("/jobs").text


def test_names_are_text_and_nothing_else(visitor: TestClient) -> None:
    made = send_images(visitor, npz(images=arrays(7)["images"]), epsilon="1", name=HOSTILE).json()
    job_id = submit(visitor, made["id"], epsilon=0.5)
    for path in ("/", f"/datasets/{made['id']}", f"/datasets/{made['id']}/new-job", "/jobs", f"/jobs/{job_id}"):
        page = visitor.get(path).text
        assert "<script>alert" not in page
        assert html.escape(HOSTILE) in page.replace("&#34;", "&quot;")


def test_the_price_is_the_api_s_and_the_button_sends_what_was_priced(visitor: TestClient, dataset_id: str) -> None:
    shown = plan(visitor, dataset_id, epsilon="2")
    body = json.loads(html.unescape(re.search(r'data-body="([^"]+)"', shown)[1]))
    priced = visitor.post("/v1/plans", json=body).json()
    remaining = priced["budget_after"]["epsilon_remaining"]
    assert f"This job leaves you ε = {int(remaining * 100) / 100:g}" in text_of(shown)
    assert "disabled" not in shown
    once = re.search(r'data-once="([^"]+)"', shown)[1]
    first = visitor.post("/v1/jobs", json=body, headers={"Idempotency-Key": once})
    second = visitor.post("/v1/jobs", json=body, headers={"Idempotency-Key": once})
    assert first.json()["id"] == second.json()["id"]
    assert body["spec"]["epsilon"] == 2
    assert body["spec"]["evaluation"]["enabled"] is False
    assert priced["cost"]["rationale"]
    assert priced["cost"]["rationale"] in text_of(shown)
    assert "data-body" in plan(visitor, dataset_id, preset="teach")


def test_a_chosen_encoder_serves_classifiers_and_labels() -> None:
    seeing = {"name": "scattering", "encoder": {"name": "imagenet-lite0"}}
    for form, method in (
        ({"preset": "classifier"}, seeing),
        ({"preset": "teach", "public_data": "ds_pool"}, {"name": "labelled_pool", "classifier": seeing}),
    ):
        request = read_form({"epsilon": "1", "encoder": '{"name": "imagenet-lite0"}', **form})
        assert request == read_form({"epsilon": "1", "method": json.dumps(method), **form})


def test_addresses_that_people_and_browsers_guess_lead_somewhere(visitor: TestClient) -> None:
    account = visitor.get("/account").text
    assert "owner" in account
    assert "datasets:write" in account
    assert visitor.get("/datasets").url.path == "/"
    assert visitor.get("/favicon.ico").headers["content-type"].startswith("image/svg")
    visitor.cookies.clear()
    assert visitor.get("/account").url.path == "/sign-in"


def test_a_form_that_cannot_be_priced_says_why(visitor: TestClient, dataset_id: str) -> None:
    for form, sentence in [
        ({"epsilon": "0"}, "“ε this job may spend”: Must be greater than 0."),
        ({"epsilon": ""}, "“ε this job may spend”: Must be a finite number."),
        ({"preset": "wonderful"}, "There is no preset"),
        ({"method": "{"}, "not valid JSON"),
        ({"method": '{"name": "nothing"}'}, "The name must be one of"),
        ({"method": '{"name": "moments", "clip_norm": 7}'}, "Must be at most 1"),
        ({"more": "1"}, "more: There is no field of this name"),
        ({"encoder": '{"name": "scattering"}'}, "An encoder serves"),
    ]:
        shown = plan(visitor, dataset_id, **form)
        assert sentence in text_of(shown), form
        assert "data-body" not in shown


def test_a_job_can_be_planned_like_an_earlier_one(visitor: TestClient, dataset_id: str) -> None:
    job_id = submit(visitor, dataset_id, epsilon=0.25, seed=11, method={"name": "moments", "subspace_dimensions": 7})
    form = visitor.get(f"/datasets/{dataset_id}/new-job?like={job_id}").text
    assert 'value="0.25"' in form
    assert 'value="11"' in form
    assert "&#34;subspace_dimensions&#34;: 7" in form


def test_a_job_in_each_of_its_states(visitor: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> None:
    job_id = submit(visitor, dataset_id, synthetic_images=40)
    queued = visitor.get(f"/jobs/{job_id}").text
    assert "in the queue" in queued
    assert 'data-again="2"' in queued
    assert "Cancel this job?" in queued
    succeed(services, job_id, tmp_path)
    succeeded = visitor.get(f"/jobs/{job_id}").text
    assert "data-again" not in succeeded
    assert "Download synthetic images" in succeeded
    assert "Cancel this job?" not in succeeded
    ledger = text_of(visitor.get(f"/datasets/{dataset_id}").text)
    assert all(word in ledger for word in ("Budget opened", "Set aside for a job", "Job ended, the rest returned"))
    assert visitor.get(f"/jobs/{job_id}/report").status_code == 200
    assert "audience=owner" in visitor.get(f"/jobs/{job_id}/report?audience=owner").text

    other = submit(visitor, dataset_id)
    visitor.post(f"/v1/jobs/{other}:cancel")
    assert "Stopped on request" in visitor.get(f"/jobs/{other}").text
    assert visitor.get(f"/jobs/{other}/report").status_code == 409

    failed = submit(visitor, dataset_id)
    lease = claimed(services, failed)
    leases.finish(services.database, lease, JobState.FAILED, {"type": "/problems/out-of-memory"})
    assert "memory does not suffice" in visitor.get(f"/jobs/{failed}").text


def test_samples_of_a_running_job_are_shown_if_they_are_releasable(
    visitor: TestClient, services: Services, dataset_id: str
) -> None:
    job_id = submit(visitor, dataset_id)
    lease = claimed(services, job_id)
    assert "Samples so far" not in visitor.get(f"/jobs/{job_id}").text
    assert visitor.get(f"/jobs/{job_id}/samples.png").status_code == 404
    services.artifacts.put(lease, "samples.png", b"\x89PNG", releasable=True, media_type="image/png")
    assert "Samples so far" in visitor.get(f"/jobs/{job_id}").text
    assert visitor.get(f"/jobs/{job_id}/samples.png").content == b"\x89PNG"
    services.artifacts.put(lease, "samples.png", b"\x89PNG", releasable=False, media_type="image/png")
    assert visitor.get(f"/jobs/{job_id}/samples.png").status_code == 404


def test_an_owner_raises_the_budget_with_what_the_form_sends(
    visitor: TestClient, services: Services, dataset_id: str
) -> None:
    page = visitor.get(f"/datasets/{dataset_id}").text
    form = re.search(r'<form[^>]* id="raise-form" data-send="POST ([^"]+)".*?</form>', page, re.DOTALL)
    assert form is not None
    assert set(re.findall(r' name="(\w+)"', form[0])) == {"epsilon", "reason"}
    wanted = {"epsilon": 12.5, "reason": "Second study, agreed with the data protection officer."}
    assert visitor.post(form[1], json=wanted).status_code == 200
    raised = visitor.get(f"/datasets/{dataset_id}").text
    assert "Budget raised by its owner" in text_of(raised)
    assert "ε 12.5 at δ" in text_of(raised)
    assert wanted["reason"] not in raised, "it is for the audit journal"
    with services.database.session() as session:
        table = build_table(read_slice(session, dataset_id, None, 10), 1e-5)
    assert [row.kind for row in table.rows] == ["raise", "open"]
    assert sum(row.share for row in table.rows) == pytest.approx(100), "of the new limit"
    assert set(EntryKind) == _MEANINGS.keys()


def test_a_long_ledger_comes_in_pages_with_the_receipt_on_each(visitor: TestClient, dataset_id: str) -> None:
    for _ in range(30):
        visitor.post(f"/v1/jobs/{submit(visitor, dataset_id)}:cancel")
    assert visitor.delete(f"/v1/datasets/{dataset_id}").status_code in (200, 204)
    newest = visitor.get(f"/datasets/{dataset_id}").text
    link = re.search(rf'href="(/datasets/{dataset_id}\?before=\d+)#journal">Older entries', newest)
    assert link is not None
    oldest = visitor.get(link[1]).text
    assert "Budget opened" not in text_of(newest)
    assert "Budget opened" in text_of(oldest)
    assert "Older entries" not in oldest
    tables = [page.partition('id="journal"')[2] for page in (newest, oldest)]
    numbers = [int(number) for table in tables for number in re.findall(r">(\d+)</td>\s*<th", table)]
    assert numbers == list(range(len(journal(visitor, dataset_id)), 0, -1))
    for page in (newest, oldest):
        assert "Receipt of the deletion" in page
        assert journal(visitor, dataset_id)[-1]["hash"] in page, "the receipt names the entry of the deletion"
        assert "Plan a job" not in page
    assert visitor.get(f"/datasets/{dataset_id}/new-job").status_code == 409
    for before in ("0", "-1", "x", str(2**63)):
        refused = visitor.get(f"/datasets/{dataset_id}?before={before}")
        assert refused.status_code == 422
        assert "before in the address: Must be" in refused.text


def test_an_upload_that_cannot_be_used_says_why(visitor: TestClient) -> None:
    begun = register(visitor, b"no images", name=HOSTILE)
    page = visitor.get(f"/datasets/{begun}").text
    assert "being read" in page or "cannot be used" in page
    settled(visitor, begun)
    page = visitor.get(f"/datasets/{begun}").text
    assert "This upload cannot be used" in page
    assert "data-again" not in page
    assert "<script>alert" not in page
    assert "Not usable" in visitor.get("/").text
    visitor.delete(f"/v1/datasets/{begun}")
    assert "were deleted" in visitor.get(f"/datasets/{begun}").text


def test_what_was_found_in_the_records_is_not_in_the_page(visitor: TestClient, dataset_id: str) -> None:
    """It is fetched from the API, which audits it, when its owner opens it."""
    page = visitor.get(f"/datasets/{dataset_id}").text
    found = visitor.get(f"/v1/datasets/{dataset_id}/validation").json()["counts"]
    assert found["classes"]["0"] == 50
    assert "0: 50" not in text_of(page)
    assert f'data-found="/v1/datasets/{dataset_id}/validation"' in page


def test_an_operator_sees_no_more_than_their_key_may(
    visitor: TestClient, services: Services, dataset_id: str, tmp_path: Path
) -> None:
    job_id = submit(visitor, dataset_id, synthetic_images=40)
    succeed(services, job_id, tmp_path)
    sign_in(visitor, KeyRequest("operator", role=Role.OPERATOR))
    dataset, job = visitor.get(f"/datasets/{dataset_id}").text, visitor.get(f"/jobs/{job_id}").text
    for left_out in ("For you alone", "Delete the images", "Raise the budget", 'href="/keys"'):
        assert left_out not in dataset
    assert "Owner’s report" not in job
    assert visitor.get(f"/datasets/{dataset_id}/new-job").status_code == 200
    assert visitor.get("/datasets/new").status_code == 403
    assert visitor.get("/keys").status_code == 403


def test_a_consumer_begins_with_the_releases_and_sees_nothing_else(
    visitor: TestClient, services: Services, tmp_path: Path
) -> None:
    dataset_id = send_images(visitor, npz(images=arrays(7)["images"]), name="Patients of Dr. Holm").json()["id"]
    released, waiting = (submit(visitor, dataset_id, synthetic_images=40) for _ in range(2))
    succeed(services, released, tmp_path, EXAMPLE_PROOF["card"])
    _, plain = keys.create(services.database, KeyRequest("consumer", role=Role.CONSUMER))
    first = visitor.post("/sign-in", data={"key": plain})
    assert (first.status_code, first.url.path) == (200, "/releases")
    page = first.text
    assert released in page
    assert '">' not in text_of(page), "markup within an attribute"
    hidden = ("Patients of Dr. Holm", dataset_id, waiting, "Owner", "Journal", *_private_names(services))
    assert [found for found in hidden if found in page] == []
    assert "ccuracy" not in page.replace("No accuracy is stated", "")
    addresses = set(re.findall(r'(?:href|action|formaction|src)="([^"]+)"', page))
    offered = sorted(html.unescape(address) for address in addresses if address.startswith("/v1/"))
    assert len(offered) == 6
    for address in offered:
        assert visitor.get(address).status_code == 200, address
    for path in ("/jobs", f"/datasets/{dataset_id}", f"/jobs/{released}", "/keys", f"/jobs/{released}/report"):
        refused = visitor.get(path)
        assert refused.status_code == 403, path
        assert "To the releases" in refused.text


def _private_names(services: Services) -> list[str]:
    found = [
        file for job in jobs.list_jobs(services.database).items for file in services.artifacts.list_artifacts(job.id)
    ]
    names = [file.name for file in found if not file.releasable]
    assert names
    return names


def test_no_page_offers_a_file_for_the_owner_to_be_passed_on(
    visitor: TestClient, services: Services, dataset_id: str, tmp_path: Path
) -> None:
    job_id = submit(visitor, dataset_id, synthetic_images=40)
    succeed(services, job_id, tmp_path)
    proof = f'href="/v1/jobs/{job_id}/bundle"'
    page = visitor.get(f"/jobs/{job_id}").text
    assert proof in page
    [offered] = re.findall(r"<li><a href=\"[^\"]*account-proof.json\">.*?</li>", page)
    assert "For you alone, not to be passed on" in offered
    assert proof in visitor.get("/releases").text
    assert "account-proof" not in visitor.get("/releases").text
    with services.database.transaction() as session:
        chosen = (ArtifactRow.job_id == job_id, ArtifactRow.name == "privacy.json")
        session.execute(update(ArtifactRow).where(*chosen).values(releasable=False))
    for path in (f"/jobs/{job_id}", "/releases"):
        assert proof not in visitor.get(path).text, "of a job of an earlier version"


def test_the_page_of_a_data_set_says_to_its_owner_whose_budget_it_shares(visitor: TestClient, dataset_id: str) -> None:
    again = visitor.post("/v1/datasets", files={"file": npz()}, data=CONFIRMED).json()
    assert (again["joined"]["known_records"], again["joined"]["dataset_ids"]) == (200, [dataset_id])
    page = visitor.get(f"/datasets/{again['id']}").text
    assert "200 of these images were known" in text_of(page)
    assert f'href="/datasets/{dataset_id}"' in page
    assert 'id="joined"' not in visitor.get(f"/datasets/{dataset_id}").text
    sign_in(visitor, KeyRequest("hands", role=Role.OPERATOR))
    for shown in (again["id"], dataset_id):
        page = visitor.get(f"/datasets/{shown}").text
        assert 'id="joined"' not in page
        assert "Shares this budget with" not in page


def test_a_shared_budget_is_on_the_first_page_once(visitor: TestClient, dataset_id: str) -> None:
    visitor.post("/v1/datasets", files={"file": npz()}, data={**CONFIRMED, "name": "Once more"})
    page = visitor.get("/").text
    assert text_of(page).count("ε available") == 1
    assert "Shares the budget of Once more" in page
    sign_in(visitor, KeyRequest("hands", role=Role.OPERATOR))
    assert "Shares the budget" not in visitor.get("/").text


def test_errors_are_pages_with_a_way_back(visitor: TestClient) -> None:
    for path, status in (("/datasets/ds_none", 404), ("/jobs/job_none", 404), ("/jobs/%00", 404)):
        page = visitor.get(path)
        assert page.status_code == status
        assert page.headers["content-type"].startswith("text/html")
        assert 'href="/"' in page.text


def test_lists_go_on_where_they_ended(visitor: TestClient, dataset_id: str) -> None:
    made = [submit(visitor, dataset_id, epsilon=0.01) for _ in range(26)]
    first = visitor.get("/jobs").text
    older = re.search(r'href="(/jobs\?after=[^"]+)"', first)[1]
    second = visitor.get(html.unescape(older)).text
    assert made[-1] in first
    assert made[0] not in first
    assert made[0] in second


def test_the_theme_comes_with_the_page(visitor: TestClient) -> None:
    assert "data-theme" not in visitor.get("/").text
    visitor.cookies.set("datalens-theme", "dark")
    assert '<html lang="en" data-theme="dark">' in visitor.get("/").text
    visitor.cookies.set("datalens-theme", '"><script>')
    assert "data-theme" not in visitor.get("/").text


def test_an_address_without_anything_is_a_page_for_browsers(visitor: TestClient) -> None:
    page = visitor.get("/nonsense", headers={"Accept": "text/html,application/xhtml+xml;q=0.9"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is nothing at this address." in text_of(page.text)
    assert "To your data sets" in page.text
    for path, accepts in (("/nonsense", "*/*"), ("/v1/nonsense", "text/html")):
        answer = visitor.get(path, headers={"Accept": accepts})
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


def test_a_job_lists_what_happened_to_it(visitor: TestClient, dataset_id: str) -> None:
    job_id = submit(visitor, dataset_id)
    visitor.post(f"/v1/jobs/{job_id}:pause")
    page = text_of(visitor.get(f"/jobs/{job_id}").text)
    assert "Accepted, its budget reserved" in page
    assert "Paused" in page.partition("What happened")[2]


def test_every_kind_of_event_has_words() -> None:
    words = _templates.get_template("parts/words.html.j2").module.EVENTS  # type: ignore[attr-defined]
    assert words.keys() == set(EventType)


def test_data_sets_are_searched_by_name_tag_and_state(visitor: TestClient, dataset_id: str) -> None:
    visitor.patch(f"/v1/datasets/{dataset_id}", json={"name": "Skin, 100 % checked", "tags": ["ward 3"]})
    for query, shown in {
        "search=skin": True, "search=0+%25": True, "search=ward+3": True, "search=bones": False, "search=_": False,
        "state=ready": True, "state=deleted": False, "search=skin&state=invalid": False,
    }.items():  # fmt: skip
        page = visitor.get(f"/?{query}").text
        assert ("Skin, 100 % checked" in page) == shown, query
        assert ("No data set matches." in page) != shown
    for search, count in {"ward 3": 1, "bones": 0}.items():
        assert len(visitor.get("/v1/datasets", params={"search": search}).json()["items"]) == count
