"""The API reference for people: complete, ours alone, and open to nobody's script."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from api.dashboard import reference
from api.dashboard.markup import marked
from api.main import create_app
from api.problems.problem_types import PROBLEM_TYPES
from datalens_service.settings import Settings

DOCUMENT: dict[str, Any] = create_app(Settings(data_dir=Path("never-opened"))).openapi()
SECTIONS = [tag["name"] for tag in DOCUMENT["tags"]]
LARGEST_PAGE = 200_000


class Reading(HTMLParser):
    """What a page says, where it leads, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words, self.ids, self.links, self.loads = "", list[str](), list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert not [name for name in given if name.startswith("on") or name == "style"]
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        elif "src" in given or "href" in given:
            self.loads.append(given.get("src") or given["href"])

    def handle_endtag(self, tag: str) -> None:
        self.words += " " if tag in ("p", "dt", "dd", "li") else ""

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def stranger(client: TestClient) -> TestClient:
    """Somebody without a key."""
    del client.headers["Authorization"]
    client.follow_redirects = False
    return client


def operations(section: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (path, method, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if section in operation["tags"]
    ]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_has_all_of_its_operations_with_all_that_is_known(stranger: TestClient, section: str) -> None:
    answer = stranger.get(f"/docs/{section}")
    assert answer.status_code == 200
    page = Reading(answer.text)
    for path, method, operation in operations(section):
        article = Reading(article_of(answer.text, operation["operationId"]))
        assert f"{method.upper()} {path}" in article.words
        assert operation["summary"] in article.words
        for parameter in operation.get("parameters", ()):
            assert parameter["name"] in article.words
        for status, given in operation["responses"].items():
            for slug in given.get("content", {}).get("application/problem+json", {}).get("examples", {}):
                assert f"/problems/{slug}" in article.links
            assert status in article.words
        assert "curl" in article.words
        assert ("$KEY" in article.words) == bool(operation.get("security"))
    assert len(page.ids) == len(set(page.ids))
    # What is named is explained on the same page.
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert len(answer.content) < LARGEST_PAGE


def article_of(text: str, name: str) -> str:
    match = re.search(rf'<article class="sheet operation" id="{name}".*?</article>', text, re.DOTALL)
    assert match is not None, name
    return match[0]


def test_members_of_bodies_are_shown_with_their_limits(stranger: TestClient) -> None:
    page = Reading(article_of(stranger.get("/docs/jobs").text, "TrainingSpec"))
    words = " ".join(page.words.split())
    assert "epsilon number required ε this job may spend at δ. > 0 ≤ 100" in words
    assert "seed integer Of training randomness; noise never has a seed. ≥ 0 < 2^63 default 0" in words
    assert {"#DataLens", "#Moments", "#Guided", "#EvaluationSettings"} <= set(page.links)
    form = Reading(article_of(stranger.get("/docs/datasets").text, "createDataset"))
    assert "multipart/form-data" in form.words
    assert "records_per_unit" in form.words


def test_the_overview_leads_to_every_operation_and_problem(stranger: TestClient) -> None:
    page = Reading(stranger.get("/docs").text)
    for section in SECTIONS:
        for _, _, operation in operations(section):
            assert f"/docs/{section}#{operation['operationId']}" in page.links
    assert {problem.uri for problem in PROBLEM_TYPES.values() if problem.status} <= set(page.links)
    assert "/openapi.json" in page.links


@pytest.mark.parametrize("path", ["/docs", "/docs/jobs", "/docs/nothing", "/problems/not-found"])
def test_it_is_served_by_us_under_the_policy_of_all_pages(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path, headers={"Accept": "text/html"})
    policy = stranger.get("/sign-in").headers["content-security-policy"]
    assert answer.headers["content-security-policy"] == policy
    assert "unsafe" not in policy
    page = Reading(answer.text)
    assert all(load.startswith("/static/") for load in page.loads)
    assert all(link.startswith(("/", "#")) for link in page.links)
    for load in page.loads:
        assert stranger.get(load).status_code == 200


def test_what_the_framework_would_serve_is_gone(stranger: TestClient) -> None:
    answer = stranger.get("/redoc")
    assert (answer.status_code, answer.headers["location"]) == (308, "/docs")
    assert stranger.get("/docs/oauth2-redirect").status_code == 404
    assert stranger.get("/docs/nothing").status_code == 404
    for path in ("/docs", "/redoc", "/docs/jobs"):
        assert "jsdelivr" not in stranger.get(path, follow_redirects=True).text


def test_commands_carry_what_they_need() -> None:
    known = {one.id: one.curl for section in reference.sections(DOCUMENT) for one in section.operations}
    assert known["getLiveness"] == 'curl -s \\\n     "$DATALENS/livez"'
    assert known["cancelJob"].endswith('"$DATALENS/v1/jobs/${JOB_ID}:cancel"')
    assert "-X POST" in known["cancelJob"]
    assert "-X DELETE" in known["deleteDataset"]
    assert "-F file=@mnist.npz -F epsilon=10.0" in known["createDataset"]
    assert "-OJ" in known["getJobSynthetic"]
    assert "-OJ" not in known["getJob"]
    assert '-H "Upload-Length: …"' in known["createUpload"]
    assert known["getUploadOffset"].startswith("curl -s --head")


def test_text_stays_text() -> None:
    assert marked("a < `b & c`") == "<p>a &lt; <code>b &amp; c</code></p>"
    assert marked("one\n\n- `x`: y\n- z") == "<p>one</p><ul><li><code>x</code>: y</li><li>z</li></ul>"
    assert marked("<script>") == "<p>&lt;script&gt;</p>"
    assert marked("") == ""
