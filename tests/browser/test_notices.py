"""What an upload was read as, in words on the page, and a further part that shares its budget."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.visitor import Visitor
from tests.data.builders import encoded, write_zip

pytestmark = pytest.mark.browser


def folders(path: Path, seed: int) -> Path:
    """Class folders with a blank image, beside a validation folder."""
    rng = np.random.default_rng(seed)
    pixels = [rng.integers(0, 256, (8, 8), dtype=np.uint8) * (number != 0) for number in range(20)]
    files = {f"train/{number % 2}/{number}.png": encoded(Image.fromarray(one)) for number, one in enumerate(pixels)}
    return write_zip(path, {**files, "val/0/unused.png": files["train/1/19.png"]})


def test_the_page_says_how_an_upload_was_read_and_a_further_part_shares_its_budget(
    owner: Visitor, tmp_path: Path
) -> None:
    page = owner.page
    first = owner.upload(folders(tmp_path / "first.zip", 91), name="Part one")
    notices = page.locator("#private-notices li")
    expect(notices).to_have_count(2)
    expect(notices.first).to_contain_text("val/0/unused.png")
    expect(notices.last).to_contain_text("single colour")
    owner.shows("upload-notices")
    page.goto(f"/datasets/{first}")
    page.get_by_text("For you alone").click()
    expect(page.locator("#private-notices li")).to_have_count(2)
    owner.shows("data-set-notices")

    page.goto("/datasets/new")
    page.locator("#file").set_input_files(folders(tmp_path / "second.zip", 92))
    page.get_by_text("More settings", exact=True).click()
    page.get_by_label("Leave out images of a single colour").check()
    page.get_by_label("Share the budget of").select_option(first)
    expect(page.get_by_label("Lifetime privacy budget ε")).to_be_disabled()
    owner.shows("upload-shares-a-budget")
    page.get_by_role("button", name="Upload and check").click()
    owner.confirm()
    expect(page.get_by_role("heading", name="Checked and stored")).to_be_visible()
    expect(page.locator("#upload-found")).to_contain_text("19 images")
    expect(notices.last).to_contain_text("left out")
    page.get_by_role("link", name="Look at the data set").click()
    expect(page.get_by_text("Shares this budget with")).to_be_visible()
