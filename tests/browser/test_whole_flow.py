"""From the key to the images, as somebody goes who sees it for the first time, below a path prefix."""

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import expect

from deployments.reverse_proxy import ROOT_PATH
from tests.browser.conftest import Proxied
from tests.browser.visitor import JOB_MILLISECONDS, Visitor

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]


@pytest.fixture
def service(proxied_service: Proxied) -> Proxied:
    return proxied_service


def test_from_the_key_to_the_images_and_back_to_nothing(visitor: Visitor, upload: Path, tmp_path: Path) -> None:
    page, home = visitor.page, visitor.service.url
    assert home.endswith(ROOT_PATH)
    page.goto(f"{home}/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    visitor.shows("1-sign-in")
    page.get_by_label("API key").fill("dlk_not_a_key")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("This is not an API key")
    visitor.sign_in()
    [session] = [cookie for cookie in page.context.cookies() if cookie["name"] == "__Secure-datalens-session"]
    assert (session["path"], session["secure"], session["httpOnly"]) == (ROOT_PATH, True, True)
    expect(page.get_by_role("heading", name="Upload your first data set")).to_be_visible()
    visitor.shows("2-first-visit")

    page.get_by_role("link", name="Upload images").click()
    _upload_is_refused_in_a_sentence(visitor, tmp_path)
    visitor.shows("3-upload-refused")
    page.locator("#file").set_input_files(upload)
    page.get_by_label("Name", exact=True).fill("Digits")
    page.get_by_label("Lifetime privacy budget ε").fill("20")
    page.get_by_role("button", name="Upload and check").click()
    expect(page.get_by_role("region", name="10 class names to publish")).to_be_focused()
    visitor.shows("4-review")
    visitor.confirm()
    expect(page.get_by_role("region", name="Checked and stored")).to_be_focused()
    expect(page.locator("#upload-found")).to_contain_text("1,438")
    visitor.shows("4-uploaded")

    page.get_by_role("link", name="Plan a job").click()
    page.wait_for_url("**/new-job")
    dataset = page.url.split("/")[-2]
    _price_follows_the_form(visitor)
    visitor.shows("5-plan")

    job = visitor.submit()
    expect(page.locator("#progress")).to_be_visible()
    visitor.shows("6-job-at-work")
    expect(page.locator("#live")).not_to_have_attribute("data-again", "2", timeout=JOB_MILLISECONDS)
    expect(page.locator("#live")).to_have_attribute("data-state", "Succeeded")
    expect(page.locator("#said")).to_have_text("The job is now: Succeeded.")
    expect(page).to_have_title(re.compile("^Succeeded: "))
    visitor.shows("7-job-succeeded")
    _images_come_down(visitor, tmp_path)
    _report_is_shown(visitor, job)

    for name, place in (("API reference", "docs"), ("DataLens", ""), ("Keys", "keys"), ("Jobs", "jobs")):
        page.get_by_role("link", name=name, exact=True).first.click()
        page.wait_for_url(f"{home}/{place}")
        if place == "docs":
            expect(page.locator(".opblock").first).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("Succeeded"))).to_have_count(1)
    visitor.shows("9-jobs")
    page.get_by_role("link", name="Releases").click()
    expect(page.get_by_role("article")).to_have_count(1)
    expect(page.get_by_label("Format")).to_contain_text("Parquet (Hugging Face)")
    visitor.shows("19-releases")
    page.goto(f"{home}/")
    _the_theme_is_remembered(visitor)
    visitor.shows("10-data-sets")
    page.get_by_role("link", name="Digits").first.click()
    expect(
        page.get_by_role("cell", name="Budget opened").or_(page.get_by_role("rowheader", name="Budget opened"))
    ).to_be_visible()
    visitor.shows("11-data-set")
    _budget_is_raised(visitor)
    _deletion_has_a_receipt(visitor, dataset)
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(f"{home}/sign-in")
    page.goto(f"{home}/jobs/{job}")
    page.wait_for_url(f"{home}/sign-in?next=/jobs/{job}")
    page.get_by_label("API key").fill(visitor.service.api_key)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(f"{home}/jobs/{job}")


def _the_theme_is_remembered(visitor: Visitor) -> None:
    page, colour = visitor.page, "getComputedStyle(document.body).backgroundColor"
    colours = [page.evaluate(colour)]
    for chosen in ("dark", "light"):
        page.get_by_role("button", name="Switch between light and dark").click()
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", chosen)
        colours.append(page.evaluate(colour))
    assert colours[0] == colours[2] != colours[1]
    [theme] = [cookie for cookie in page.context.cookies() if cookie["name"] == "datalens-theme"]
    assert theme["path"] == ROOT_PATH


def _upload_is_refused_in_a_sentence(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    page.get_by_role("button", name="Upload and check").click()
    expect(page.locator("#file")).to_have_attribute("aria-invalid", "true")
    wrong = tmp_path / "letter.npz"
    wrong.write_text("no images")
    page.locator("#file").set_input_files(wrong)
    page.get_by_role("button", name="Upload and check").click()
    expect(page.locator("#upload-problem")).to_be_focused()
    expect(page.locator("#upload-problem")).not_to_be_empty()
    expect(page.get_by_role("button", name="Upload and check")).to_be_enabled()


def _price_follows_the_form(visitor: Visitor) -> None:
    page = visitor.page
    leaves = page.locator(".leaves")
    expect(leaves).to_contain_text("This job leaves you ε = 19")
    page.get_by_label("ε this job may spend", exact=True).fill("15")
    expect(page.locator("#epsilon-tier")).to_have_text("Tier 3 of 3: no formal claim")
    expect(leaves).not_to_contain_text("ε = 19")
    page.get_by_label("ε this job may spend", exact=True).fill("21")
    expect(page.locator("#price-part")).to_contain_text("The budget does not cover this job")
    expect(page.get_by_role("button", name="Submit job")).to_be_disabled()
    page.get_by_label("ε this job may spend", exact=True).fill("8")
    expect(leaves).to_be_visible()
    visitor.priced()


def _images_come_down(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    grid = page.locator("#live-result img[src$='samples.png']")
    assert grid.evaluate("async (image) => { await image.decode(); return image.naturalWidth; }") > 0
    page.get_by_label("Images", exact=True).fill("50")
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download synthetic images").click()
    path = tmp_path / "synthetic.parquet"
    coming.value.save_as(path)
    assert pq.read_table(path).num_rows == 50


def _report_is_shown(visitor: Visitor, job: str) -> None:
    page = visitor.page
    page.get_by_role("link", name="Report to pass on").click()
    page.wait_for_url(f"**/jobs/{job}/report")
    report = page.frame_locator("iframe")
    expect(report.get_by_role("heading", name="Privacy report", exact=True)).to_be_visible()
    visitor.shows("8-report")
    page.get_by_role("link", name="Owner’s").click()
    expect(page.frame_locator("iframe").get_by_text("Owner’s copy")).to_be_visible()


def _budget_is_raised(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_role("button", name="Raise the budget…").click()
    page.get_by_label("New lifetime budget ε").fill("25")
    page.get_by_label("Why, and who agreed").fill("Second study, agreed with the data protection officer.")
    page.get_by_role("button", name="Raise for good").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("I know that a raise cannot be undone").check()
    visitor.shows("20-raise")
    with page.expect_navigation():
        page.get_by_role("button", name="Raise for good").click()
    expect(page.get_by_role("rowheader", name="Budget raised by its owner")).to_be_visible()
    expect(page.locator(".budget")).to_contain_text("ε 25 at δ")


def _deletion_has_a_receipt(visitor: Visitor, dataset: str) -> None:
    page = visitor.page
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("I understand that this cannot be undone").check()
    page.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_role("heading", name="Receipt of the deletion")).to_be_visible()
    expect(page.locator(".receipt")).to_contain_text(dataset)
    visitor.shows("12-deleted")
