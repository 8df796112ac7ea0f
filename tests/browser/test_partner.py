"""From a wanted accuracy to a partner, who has neither a key nor scripts: a second person releases the result."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, expect

from datalens_service.proof.release_verification import verify_path
from tests.browser.conftest import PATIENCE_MILLISECONDS
from tests.browser.visitor import DESK, JOB_MILLISECONDS, PHONE, SEEN_WHOLE, Visitor
from tests.cli.service import DATALENS, RunningService

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
NARROW = {"width": 390, "height": 844}


@pytest.fixture
def partner(chromium: Browser, service: RunningService, screenshots: Path) -> Iterator[Visitor]:
    """Somebody else's browser, which runs no script."""
    context = chromium.new_context(base_url=service.url, viewport=DESK, java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    made = Visitor(page, service, screenshots)
    yield made
    context.close()
    assert made.complaints == []


@pytest.fixture
def steward(chromium: Browser, service: RunningService, screenshots: Path) -> Iterator[Visitor]:
    """A second person, whose key was made on the machine of the service."""
    made = subprocess.run(
        [*DATALENS, "keys", "create", "--name", "Sue", "--role", "steward", "--data-dir", str(service.data_dir)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    context = chromium.new_context(base_url=service.url, viewport=DESK, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MILLISECONDS)
    page.goto("/sign-in")
    page.get_by_label("API key").fill(made.stdout.strip())
    page.get_by_role("button", name="Sign in").click()
    visitor = Visitor(page, service, screenshots)
    yield visitor
    context.close()
    assert visitor.complaints == []


def decide(steward: Visitor, job: str) -> None:
    """Read what others would read, and release it with a reason."""
    page = steward.page
    page.goto("/jobs")
    expect(page.get_by_text("waits for a second person").first).to_be_visible()
    page.goto(f"/jobs/{job}")
    expect(page.get_by_text("a coin gets 50")).to_be_visible()
    steward.shows("39-steward-decides")
    page.get_by_role("button", name="Release it…").click()
    page.get_by_role("textbox", name="Why").fill("Report read; agreed with the data protection officer.")
    with page.expect_navigation():
        page.get_by_role("button", name="Release it", exact=True).click()
    expect(page.get_by_text("Released by a second person")).to_be_visible()


def share(owner: Page, name: str) -> str:
    """Make a link on the page of a release; its address."""
    owner.get_by_role("button", name="New link").click()
    owner.get_by_label("Whom is it for?").fill(name)
    owner.get_by_label("Ends after days").fill("90")
    owner.get_by_role("button", name="Make the link").click()
    expect(owner.locator("#secret-plain")).to_contain_text("/shared/")
    return owner.locator("#secret-plain").inner_text()


def test_an_accuracy_is_wanted_and_a_partner_gets_the_release_verifies_it_and_takes_500_images_of_one_class(
    owner: Visitor, steward: Visitor, partner: Visitor, upload: Path, tmp_path: Path
) -> None:
    page = owner.page
    dataset = owner.upload(upload)
    page.goto(f"/datasets/{dataset}/new-job")
    page.locator("#accuracy").fill("50")
    page.locator("#target button").click()
    expect(page.locator("#target button")).to_have_count(0)
    expect(page.locator("#price-part")).to_contain_text("a coin gets 50")
    page.get_by_text("More settings", exact=True).click()
    page.get_by_label("A second person decides").check()
    job = owner.submit()
    expect(page.locator("#live")).not_to_have_attribute("data-again", "2", timeout=JOB_MILLISECONDS)
    expect(page.get_by_text("a second person decides")).to_be_visible()
    expect(page.get_by_role("button", name="Release it…")).to_have_count(0)
    owner.shows("38-job-waits-for-a-second-person")
    decide(steward, job)
    page.get_by_role("link", name="Releases").click()
    owner.shows("40-releases")
    page.get_by_role("link", name="Share it").first.click()
    page.get_by_role("textbox", name="Title").fill("Handwritten digits")
    page.get_by_label("Licence", exact=True).select_option("CC-BY-4.0")
    with page.expect_navigation():
        page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Handwritten digits")).to_be_visible()
    address = share(page, "Northern Clinic")
    owner.shows("41-link-made")

    partner.page.goto(address)
    expect(partner.page.get_by_role("heading", name="Handwritten digits")).to_be_visible()
    for size, suffix in ((DESK, "1280"), (NARROW, "390")):
        partner.page.set_viewport_size(size)  # type: ignore[arg-type]
        wide = partner.page.locator("html").bounding_box()
        assert wide is not None
        assert wide["width"] <= size["width"]
        partner.page.screenshot(path=owner.screenshots / f"42-partner-{suffix}.png", full_page=True)
    with partner.page.expect_download() as archive:
        partner.page.get_by_role("link", name="Download the archive").click()
    archive.value.save_as(tmp_path / "release.zip")
    assert verify_path(tmp_path / "release.zip").holds
    partner.page.get_by_text("Only some classes").click()
    partner.page.get_by_label("7", exact=True).check()
    partner.page.get_by_role("spinbutton", name="Images").fill("500")
    with partner.page.expect_download() as images:
        partner.page.get_by_role("button", name="Download images alone").click()
    assert pq.read_table(images.value.path()).num_rows == 500
    page.goto(f"/jobs/{job}")
    for name in ("Evidence for the person who signs", "Draft for the public registry"):
        file = page.get_by_role("link", name=name, exact=True).get_attribute("href")
        assert page.request.get(str(file)).ok

    page.goto(address)
    owner.shows("43-shared-as-its-owner-sees-it")
    page.goto("/releases")
    page.get_by_role("link", name="Share it").first.click()
    expect(page.get_by_role("row", name="Northern Clinic")).to_contain_text("Valid")
    owner.shows("44-links")
    for place, table in (("journal", "Audit journal"), (f"datasets/{dataset}", "Ledger")):
        page.goto(f"/{place}")
        page.set_viewport_size(PHONE)  # type: ignore[arg-type]
        assert page.get_by_role("region", name=f"{table}, a table").evaluate(SEEN_WHOLE), f"{table} is cut off"
    page.set_viewport_size(DESK)  # type: ignore[arg-type]
    page.goto("/releases")
    page.get_by_role("link", name="Share it").first.click()
    page.get_by_role("button", name="Revoke the link of Northern Clinic…").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_role("row", name="Northern Clinic")).to_contain_text("Revoked")
    gone = partner.page.goto(address)
    assert gone is not None
    assert gone.status == 404
    expect(partner.page.get_by_text("has ended")).to_be_visible()
