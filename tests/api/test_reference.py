"""The API reference for people: served by us alone, and open to nobody's script."""

from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from api.pages.views.formatting import marked


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


@pytest.fixture
def stranger(client: TestClient) -> TestClient:
    """Somebody without a key."""
    del client.headers["Authorization"]
    client.follow_redirects = False
    return client


def test_it_is_served_by_us_under_the_policy_of_all_pages(stranger: TestClient) -> None:
    for path in ["/docs", "/problems/not-found"]:
        answer = stranger.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 200, path
        policy = stranger.get("/sign-in").headers["content-security-policy"]
        assert answer.headers["content-security-policy"] == policy
        assert "unsafe" not in policy
        page = Reading(answer.text)
        assert all(load.startswith("/static/") for load in page.loads)
        for load in [*page.loads, *page.descriptions]:
            assert stranger.get(load).status_code == 200


def test_it_shows_the_description_that_programs_read(stranger: TestClient) -> None:
    assert Reading(stranger.get("/docs").text).descriptions == ["/openapi.json"]


def test_what_the_framework_would_serve_is_gone(stranger: TestClient) -> None:
    for path in ["/redoc", "/docs/oauth2-redirect"]:
        assert stranger.get(path).status_code == 404, path


def test_text_stays_text() -> None:
    assert marked("a < `b & c`") == "<p>a &lt; <code>b &amp; c</code></p>"
    assert marked("one\n\n- `x`: y\n- z") == "<p>one</p><ul><li><code>x</code>: y</li><li>z</li></ul>"
    assert marked("<script>") == "<p>&lt;script&gt;</p>"
    assert marked("") == ""
