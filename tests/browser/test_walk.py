"""From a file to a release, on a phone and at a desk: upload, plan, verdict, what is handed out."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from datalens_service.data.digits import digits
from tests.browser.visitor import JOB_MILLISECONDS, Visitor

SIZES = {"phone": {"width": 390, "height": 844}, "desk": {"width": 1280, "height": 860}}
LEFT = re.compile(r"About (\d+) min left|Working out how long it takes")


@pytest.fixture
def file(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Digits with test images; those of a size have a corner of their own, so that budgets are not shared."""
    upload = digits()
    assert upload.test is not None
    train, test = (split.images.copy() for split in (upload.train, upload.test))
    train[:, 7, 7] = test[:, 7, 7] = 1 + list(SIZES).index(request.node.callspec.params["size"])
    names = {"train_images": train, "train_labels": upload.train.labels}
    np.savez_compressed(tmp_path / "digits.npz", **names, test_images=test, test_labels=upload.test.labels)
    return tmp_path / "digits.npz"


@pytest.mark.parametrize("size", list(SIZES))
def test_somebody_walks_from_upload_to_release(open_browser: Callable[..., Visitor], file: Path, size: str) -> None:
    visitor = open_browser()
    page = visitor.page
    page.set_viewport_size(SIZES[size])  # type: ignore[arg-type]
    visitor.sign_in()

    visitor.upload(file, name=f"Digits on a {size}")
    expect(page.locator("#upload-private .histogram li")).to_have_count(10)
    visitor.fits(f"walk-{size}-stored", SIZES[size])

    page.get_by_role("link", name="Plan a job").click()
    visitor.priced()
    expect(page.locator("#verdict-part #verdict")).to_contain_text("Classifiers that learn from such images")
    expect(page.locator('[data-offer="classifier"] td').first).to_contain_text("%")
    expect(page.locator('[data-offer="guessing"] td').first).to_have_text("10 %")
    visitor.fits(f"walk-{size}-plan", SIZES[size])
    visitor.submit()

    live = page.locator("#live")
    expect(live).to_have_attribute("data-state", "Running", timeout=JOB_MILLISECONDS)
    said = []
    while live.get_attribute("data-state") == "Running":
        notes = page.locator(".stages .current .stage-note").all_inner_texts()
        said += page.locator(".eta").all_inner_texts()
        assert not any(note.strip().startswith("100") for note in notes)
        page.wait_for_timeout(500)
    assert said
    assert all(LEFT.match(text.strip()) for text in said), said

    expect(live).to_have_attribute("data-state", "Succeeded", timeout=JOB_MILLISECONDS)
    expect(page.locator("#live-verdict")).to_contain_text("For you alone")
    visitor.fits(f"walk-{size}-job", SIZES[size])
    tall = page.evaluate("document.documentElement.scrollHeight")
    assert size == "desk" or tall < 4000
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as a data set to publish").click()
    assert download.value.suggested_filename
