"""The documentation site in a browser: it asks no other host, finds words, and follows its links."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.docs.test_site import build

pytestmark = pytest.mark.browser


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("site")
    assert build(folder).returncode == 0
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_readers_of_the_site_ask_no_other_host(chromium: Browser, address: str):
    page = chromium.new_page()
    page.set_default_timeout(120_000)
    page.set_default_navigation_timeout(120_000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for path in ("index.html", "reference.html", "mechanisms/topagg.html", "examples/privacy-report.html"):
        page.goto(address + path, wait_until="networkidle")
    page.goto(address + "reference.html")
    page.locator(".opblock").first.wait_for()
    page.goto(address + "index.html")
    page.get_by_label("Search", exact=True).first.click()
    page.keyboard.type("backup")
    page.locator(".md-search-result__link").first.wait_for()
    page.close()
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
