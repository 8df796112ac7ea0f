"""The documentation site builds without a broken link, and a browser that opens it asks no other host."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from datalens_service.api.main import create_app
from datalens_service.api.problems.problem_types import PROBLEM_TYPES
from datalens_service.base.settings import Settings
from repository import ROOT

LOADING = {
    "script": "src",
    "img": "src",
    "link": "href",
    "iframe": "src",
    "source": "src",
    "audio": "src",
    "object": "data",
}


def build(folder: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", folder]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_programs_find_every_page_as_markdown(site: Path) -> None:
    listed = (site / "llms.txt").read_text()
    links = re.findall(r"^- \[[^]]+\]\(([^)]+\.md)\)", listed, re.MULTILINE)
    assert {"overview.md", "privacy.md", "mechanisms/wall.md", "glossary.md", "problems.md"} <= set(links)
    assert len(links) == len(set(links))
    for name in links:
        assert (site / name).read_text().strip(), name
    pages = {str(path.relative_to(site).with_suffix(".md")) for path in site.rglob("*.html")}
    unlisted = pages - set(links) - {"404.md", "reference.md", "examples/privacy-report.md"}
    assert {name for name in unlisted if not name.startswith("source/")} == set()
    assert "](" not in listed.replace("- [", "").split("\n> ")[1].split("\n")[0]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Not into the output of the tests."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Resources(HTMLParser):
    """What a page loads from another host, and elements for which the theme's script would ask one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.foreign: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(LOADING.get(tag, ""), "") or ""
        if re.match(r"(\w+:)?//", address) and given.get("rel") != "canonical":
            self.foreign.append(address)
        if "mermaid" in (given.get("class") or "") or given.get("data-md-component") == "source":
            self.foreign.append(tag)


def test_no_page_loads_anything_from_another_host(site: Path):
    pages = {path.relative_to(site): Resources(path.read_text()).foreign for path in site.rglob("*.html")}
    assert len(pages) > 40
    assert {path: foreign for path, foreign in pages.items() if foreign} == {}
    styles = "".join(path.read_text() for path in [*site.rglob("*.css"), *site.rglob("*.html")])
    assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//[^)\"']+", styles) == []


def test_the_reference_has_every_operation_of_the_api(site: Path):
    described = create_app(Settings(data_dir=Path("never-opened"))).openapi()["paths"]
    assert json.loads((site / "openapi.json").read_text())["paths"] == described
    assert 'data-description="./openapi.json"' in (site / "reference.html").read_text()


def test_every_type_of_problem_is_explained(site: Path):
    page = (site / "problems.html").read_text()
    assert [slug for slug in PROBLEM_TYPES if f'id="{slug}"' not in page] == []


def test_a_source_file_that_a_page_links_to_is_in_the_site(site: Path):
    assert "def run(" in re.sub(r"<[^>]+>", "", (site / "source" / "datalens_service" / "training.py.html").read_text())


@pytest.mark.browser
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
