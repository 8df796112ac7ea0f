"""The whole way below a path prefix, behind a real proxy with TLS: no request of the browser leaves the prefix."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from deployments.reverse_proxy import ROOT_PATH, ReverseProxy, is_installed
from tests.browser.test_while_it_runs import LONG
from tests.browser.visitor import JOB_MILLISECONDS, Visitor
from tests.cli.service import RunningService

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Proxied:
    """A service as browsers reach it."""

    url: str
    api_key: str


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, do_without: Callable[[str], NoReturn]) -> Iterator[Proxied]:
    """It was told nothing: nginx says where it shows it."""
    if not is_installed("nginx"):
        do_without("nginx is not installed")
    folder = tmp_path_factory.mktemp("proxied")
    running = RunningService(folder / "service" / "data")
    proxy = ReverseProxy("nginx", folder, running.port)
    yield Proxied(proxy.url, running.api_key)
    proxy.stop()
    running.stop()


@pytest.fixture
def visitor(open_browser: Callable[..., Visitor]) -> Visitor:
    """One who hears of every request that leaves the prefix: it is a complaint."""
    return open_browser(ignore_https_errors=True)


def test_from_the_key_to_the_images_nothing_leaves_the_prefix(owner: Visitor, upload: Path, tmp_path: Path) -> None:
    page, home = owner.page, owner.service.url
    assert home.endswith(ROOT_PATH)
    [session] = [cookie for cookie in page.context.cookies() if cookie["name"] == "__Secure-datalens-session"]
    assert (session["path"], session["secure"], session["httpOnly"]) == (ROOT_PATH, True, True)
    owner.upload(upload)
    page.get_by_role("link", name="Plan a job").click()
    page.wait_for_url(f"{home}/datasets/*/new-job")
    form = page.url
    _a_running_job_is_followed_and_cancelled(owner)

    page.goto(form)
    job = owner.submit()
    expect(page.locator("#live")).to_have_attribute("data-state", "Succeeded", timeout=JOB_MILLISECONDS)
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download synthetic images").click()
    coming.value.save_as(tmp_path / "synthetic.parquet")
    assert pq.read_table(tmp_path / "synthetic.parquet").num_rows > 0
    page.get_by_role("link", name="Report to pass on").click()
    expect(page.frame_locator("iframe").get_by_role("heading", name="Privacy report", exact=True)).to_be_visible()

    for name, place in (("Jobs", "jobs"), ("Releases", "releases"), ("Keys", "keys"), ("API reference", "docs")):
        page.get_by_role("link", name=name, exact=True).first.click()
        page.wait_for_url(f"{home}/{place}")
        expect(page.locator("[aria-busy]")).to_have_count(0)
    expect(page.locator(".opblock").first).to_be_visible()
    page.get_by_role("link", name="DataLens", exact=True).click()
    page.wait_for_url(f"{home}/")
    _the_theme_is_remembered(owner)
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{home}/sign-in")
    page.goto(f"{home}/jobs/{job}")
    page.get_by_label("API key").fill(owner.service.api_key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{home}/jobs/{job}")


def _a_running_job_is_followed_and_cancelled(owner: Visitor) -> None:
    page, live = owner.page, owner.page.locator("#live")
    page.context.grant_permissions(["notifications"])
    page.get_by_text("More settings", exact=True).click()
    page.get_by_label("Parameters of the method").fill(json.dumps(LONG))
    page.get_by_label("ε this job may spend", exact=True).fill("5")
    expect(page.locator("#price-part")).to_contain_text("20,")
    job = owner.submit()
    with page.expect_response(re.compile(f"{ROOT_PATH}/v1/jobs/{job}/events$")) as stream:
        page.get_by_role("button", name="Notify me when it ends").click()
    assert stream.value.headers["content-type"].startswith("text/event-stream")
    expect(page.locator("#live-preview img")).to_be_visible(timeout=JOB_MILLISECONDS)
    page.get_by_role("button", name="Cancel…").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Cancel the job").click()
    expect(live).to_have_attribute("data-state", "Cancelled", timeout=JOB_MILLISECONDS)


def _the_theme_is_remembered(owner: Visitor) -> None:
    page = owner.page
    page.locator("#theme").click()
    chosen = page.locator("html").get_attribute("data-theme")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", str(chosen))
    [theme] = [cookie for cookie in page.context.cookies() if cookie["name"] == "datalens-theme"]
    assert theme["path"] == ROOT_PATH
