"""Every “?” of a page leads to a word of the glossary, and no page says one of these words without its “?”.

The API reference for people: served by us alone, and open to nobody's script.
"""

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import api_builders
import pytest
from api_builders import npz, one_of_everything, released, report_of, sign_in
from starlette.testclient import TestClient
from test_root_path import paths

from datalens_service.api.deps import Services
from datalens_service.api.pages.views.formatting import marked
from datalens_service.evaluation.metrics import METRICS

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
    other = released(client, tmp_path, dataset_id)
    waiting = client.post("/v1/datasets", files={"file": npz()}, data={"epsilon": "1"}).json()["id"]
    sign_in(client)
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


class Reading(HTMLParser):
    """What a page loads, and the descriptions that it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads, self.descriptions = list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert not [name for name in given if name.startswith("on") or name == "style"]
        assert tag != "style"
        assert tag != "script" or "src" in given
        if tag != "a" and ("src" in given or "href" in given):
            self.loads.append(given.get("src") or given["href"])
        self.descriptions += [given["data-description"]] if "data-description" in given else []


def test_no_page_loads_or_runs_anything_but_what_we_serve(client: TestClient, pages: dict[str, str]) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    loads = {load for page in pages.values() for load in Reading(page).loads}
    assert [load for load in loads if not load.startswith(("/static/", "/v1/", "/jobs/", "/shared/"))] == []
    assert {client.get(load).status_code for load in loads if load.startswith("/static/")} == {200}


def test_pages_without_a_key_are_served_by_us_under_the_policy_of_all_pages(client: TestClient) -> None:
    del client.headers["Authorization"]
    policy = client.get("/sign-in").headers["content-security-policy"]
    for path in ["/docs", "/problems/not-found", "/glossary"]:
        answer = client.get(path, headers={"Accept": "text/html"}, follow_redirects=False)
        assert (answer.status_code, answer.headers["content-security-policy"]) == (200, policy), path
        page = Reading(answer.text)
        assert all(load.startswith("/static/") for load in page.loads)
        assert {client.get(load).status_code for load in [*page.loads, *page.descriptions]} == {200}
        assert page.descriptions == (["/openapi.json"] if path == "/docs" else [])
    for path in ["/redoc", "/docs/oauth2-redirect"]:
        assert client.get(path).status_code == 404, "the framework would serve it"


def test_text_stays_text() -> None:
    assert marked("a < `b & c`") == "<p>a &lt; <code>b &amp; c</code></p>"
    assert marked("one\n\n- `x`: y\n- z") == "<p>one</p><ul><li><code>x</code>: y</li><li>z</li></ul>"
    assert marked("<script>") == "<p>&lt;script&gt;</p>"
    assert marked("") == ""
