"""A long job on its page, below a path prefix: numbers that move, samples that come, and an end on request."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Proxied
from tests.browser.visitor import JOB_MILLISECONDS, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

# More short steps than any machine makes before the test has seen enough.
LONG = {
    "name": "datalens",
    "teacher": "dense",
    "num_teachers": 20,
    "images_per_step": 10,
    "top_k": 8,
    "teacher_batch": 4,
    "teacher_warmup_steps": 2,
    "threshold": "none",
    "steps": 20000,
    "warm_start": {"name": "moments", "subspace_dimensions": 8},
}


# What the browser would show on the desktop, whichever of the pages that follow each other in the tab hears of it.
RECORDER = """
window.shown = JSON.parse(sessionStorage.getItem("shown") ?? "[]");
window.asked = 0;
const allowed = Notification.requestPermission.bind(Notification);
Notification.requestPermission = () => { window.asked += 1; return allowed(); };
window.Notification = new Proxy(Notification, {
  construct(real, [title, options]) {
    window.shown.push(`${title}: ${options.body}`);
    sessionStorage.setItem("shown", JSON.stringify(window.shown));
    return new real(title, options);
  },
});
"""


@pytest.fixture
def service(proxied_service: Proxied) -> Proxied:
    return proxied_service


def wait_until_shown(page: Page) -> None:
    """`wait_for_function` asks for `eval`, which the policy of the pages forbids."""
    for _ in range(JOB_MILLISECONDS // 100):
        if page.evaluate("shown.length"):
            return
        page.wait_for_timeout(100)


def test_a_running_job_moves_pauses_and_stops_on_request(owner: Visitor, upload: Path) -> None:
    page, home = owner.page, owner.service.url
    page.context.grant_permissions(["notifications"])
    page.add_init_script(RECORDER)
    dataset = owner.upload(upload)
    page.goto(f"{home}/datasets/{dataset}/new-job")
    page.get_by_text("More settings", exact=True).click()
    page.get_by_label("Parameters of the method").fill(json.dumps(LONG))
    page.get_by_label("ε this job may spend", exact=True).fill("5")
    expect(page.locator("#price-part")).to_contain_text("20,")
    owner.submit()
    live = page.locator("#live")
    expect(live).to_have_attribute("data-state", "Running", timeout=JOB_MILLISECONDS)
    page.get_by_role("link", name="Plan another like it").focus()

    first = page.locator("#live-preview img")
    expect(first).to_be_visible(timeout=JOB_MILLISECONDS)
    before = first.get_attribute("src")
    expect(page.locator("#live-figures .budget .number")).not_to_have_text("0")
    expect(page.locator("#live-preview img")).not_to_have_attribute("src", str(before), timeout=JOB_MILLISECONDS)
    # Refreshing has not taken the focus away.
    expect(page.get_by_role("link", name="Plan another like it")).to_be_focused()
    owner.shows("13-job-with-preview")

    with page.expect_navigation():
        page.get_by_role("button", name="Pause", exact=True).click()
    expect(live).to_have_attribute("data-state", "Paused", timeout=JOB_MILLISECONDS)
    owner.shows("14-job-paused")
    with page.expect_navigation():
        page.get_by_role("button", name="Resume", exact=True).click()
    expect(live).to_have_attribute("data-state", "Running", timeout=JOB_MILLISECONDS)

    assert page.evaluate("asked") == 0
    with page.expect_response(re.compile(f"{home}/v1/jobs/job_.*/events$")) as stream:
        page.get_by_role("button", name="Notify me when it ends").click()
    assert stream.value.headers["content-type"].startswith("text/event-stream")
    expect(page.get_by_role("button", name="You will be notified while this page is open")).to_be_disabled()
    assert page.evaluate("asked") == 1
    assert page.evaluate("shown") == []

    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Cancel…").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Cancel the job").click()
    expect(live).to_have_attribute("data-state", "Cancelled", timeout=JOB_MILLISECONDS)
    wait_until_shown(page)
    assert page.evaluate("shown") == ["DataLens: The job was cancelled."]
    expect(page.locator("#notify")).to_have_count(0)
    expect(page.locator("#live-cancelled")).to_contain_text("Stopped on request")
    owner.shows("15-job-cancelled")
    page.goto(f"{home}/datasets/{dataset}")
    # All votes in one row, although a pause came between them.
    expect(page.get_by_role("rowheader", name=re.compile("Spent on a release × .*topagg"))).to_be_visible()
