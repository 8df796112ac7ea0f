"""Two jobs chosen in the list and looked at side by side, and the images of one class by class."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from datalens_service import Client
from tests.browser.visitor import Visitor
from tests.cli.service import RunningService

pytestmark = pytest.mark.browser

FAST = {"preset": "fast", "synthetic_images": 400, "evaluation": {"synthetic_images": 400, "epochs": 1, "seeds": 1}}


def test_two_jobs_of_the_list_are_compared(
    owner: Visitor, service: RunningService, upload_with_test_images: Path
) -> None:
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(
            upload_with_test_images, epsilon=10, name="Digits to compare", confirm_classes=True
        )
        jobs = [client.submit(dataset.id, {**FAST, "epsilon": epsilon}).wait() for epsilon in (1.0, 4.0)]
        assert [job.state for job in jobs] == ["succeeded"] * 2
    page = owner.page
    page.goto("/jobs")
    page.get_by_label("Data set").select_option("Digits to compare")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**dataset=ds_**")
    expect(page.locator("tbody tr")).to_have_count(2)
    owner.shows("jobs-narrowed")
    # Four digits of what the charges amount to, which may be a little less than was asked for.
    for order, spent in {"ascending": ["1", "3.9995"], "descending": ["3.9995", "1"]}.items():
        page.get_by_role("button", name="ε spent").click()
        expect(page.get_by_role("columnheader", name="ε spent")).to_have_attribute("aria-sort", order)
        expect(page.locator("tbody td:nth-child(6)")).to_have_text(spent)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="Compare two ticked jobs").click()
    page.wait_for_url("**/jobs/compare?**")
    expect(page.locator("img.grid")).to_have_count(2)
    expect(page.locator("#figures")).to_be_visible()
    expect(page.get_by_role("row", name="requested").get_by_role("cell")).to_have_text(["4", "1"])
    owner.shows("comparison")
    page.get_by_role("heading", level=2).get_by_role("link").first.click()
    # Its form is sent by a script.
    page.wait_for_url("**/jobs/job_*")
    page.get_by_text("Change name, tags and notes").click()
    page.get_by_label("Name", exact=True).fill("The better one")
    page.get_by_label("Tags, with commas between").fill("final, board")
    page.get_by_role("textbox", name="Notes").fill("Chosen on Monday.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("The better one: Pooled moments")
    expect(page.get_by_role("link", name="board", exact=True)).to_be_visible()
    page.get_by_text("Beside your own images").click()
    shown = page.locator("#beside img").evaluate(
        "async (image) => { await image.decode(); return image.naturalWidth; }"
    )
    assert shown > 0
    page.get_by_label("Images", exact=True).fill("77")
    for summary in page.get_by_text("The same by curl or Python").all():
        summary.click()
    expect(page.locator("#download-curl")).to_contain_text("format=parquet&synthetic_images=77")
    expect(page.locator("#download-python")).to_contain_text('format="parquet", synthetic_images=77')
    owner.shows("job-named")
    page.get_by_role("link", name="Look at more, class by class").click()
    page.locator("#label").select_option("3")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Images of 3")
    viewer = page.locator("#viewer")
    viewer.evaluate("async (image) => { await image.decode(); }")
    box = viewer.bounding_box()
    assert box is not None
    viewer.click(position={"x": box["width"] * 0.15, "y": box["height"] * 0.05})
    expect(page.get_by_label("Number, row by row")).to_have_value("2")
    expect(page.get_by_role("img", name="Synthetic image 2 of this page, enlarged")).to_be_visible()
    owner.shows("images")
