"""Every “?” of a page leads to a word of the glossary, and no page says one of these words without its “?”."""

import html
import re
from pathlib import Path

import api_builders
import pytest
from api_builders import npz, one_of_everything, report_of, succeed, training
from starlette.testclient import TestClient
from test_root_path import FOLDER, paths

from api.deps import Services
from datalens_service.evaluation.metrics import METRICS
from datalens_service.store.access import keys

HINT = re.compile(r'<details class="why">.*?</details>', re.DOTALL)
LINK = re.compile(r'href="/glossary#word-([^"]+)"')
COMPARED = "two jobs"
ASKED = ("ε", "δ", "tier", "FID", "extractor")


@pytest.fixture
def pages(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """What there is to see, by its place."""
    reports = {view: report_of(view, dict.fromkeys(METRICS, 1.0)) for view in ("owner", "releasable")}
    monkeypatch.setattr(api_builders, "report", reports.__getitem__)
    ids = one_of_everything(client, services, dataset_id, tmp_path)
    other = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    succeed(services, other, tmp_path)
    waiting = client.post("/v1/datasets", files={"file": npz()}, data={"epsilon": "1"}).json()["id"]
    client.post("/sign-in", data={"key": keys.create(services.database, "browser")[1]})
    places = [path.format_map({**ids, "slug": "not-found", "name": "", "granted": ""}) for path in paths("GET")]
    seen = {place: client.get(place).text for place in [*places, f"/datasets/{waiting}"] if place[:4] != "/v1/"}
    seen[COMPARED] = client.get(f"/jobs/compare?job={ids['job_id']}&job={other}").text
    return {place: page for place, page in seen.items() if "<main" in page}


def test_every_question_mark_leads_to_its_word(client: TestClient, pages: dict[str, str]) -> None:
    anchors = set(re.findall(r' id="word-([^"]+)"', pages["/glossary"]))
    asked = {place: [LINK.findall(hint) for hint in HINT.findall(page)] for place, page in pages.items()}
    assert sum(map(len, asked.values())) > len(METRICS)
    wrong = {place: links for place, hints in asked.items() for links in hints if not links or {*links} - anchors}
    assert wrong == {}
    assert all(f"“{metric.title}”" in pages[COMPARED] for metric in METRICS.values())


def test_no_page_says_such_a_word_without_a_question_mark(pages: dict[str, str]) -> None:
    lacking = {}
    for place, page in pages.items():
        main = page.partition("<main")[2].partition("</main>")[0]
        said = html.unescape(re.sub("<[^>]+>", " ", HINT.sub("", main)))
        explained = {word for hint in HINT.findall(main) for word in LINK.findall(hint)}
        lacking[place] = {word for word in ASKED if re.search(rf"\b{word}\b", said)} - explained
    assert {place for place, words in lacking.items() if words} == {"/glossary"}


def test_the_glossary_needs_no_key(client: TestClient) -> None:
    del client.headers["Authorization"]
    assert client.get("/glossary").status_code == 200


def test_question_marks_are_made_in_one_place() -> None:
    made = [path.name for path in FOLDER.glob("pages/templates/**/*.j2") if 'class="why"' in path.read_text()]
    assert made == ["terms.html.j2"]
