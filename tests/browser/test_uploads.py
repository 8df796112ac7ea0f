"""An upload: what is done to it and how it was read, in words, and its class names before they become public.

On the page that sent it, and on its own.
"""

import ast
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Route, expect

from datalens_service.client import Client
from tests.browser.visitor import Visitor
from tests.data.builders import encoded, write_zip
from tests.data.dicom_files import dicom

pytestmark = pytest.mark.browser

WARDS = 12


def ward(number: int) -> str:
    """A name that numbers nobody, so that it is a class name until somebody looks."""
    return f"ward {chr(97 + number // 10)}{chr(97 + number % 10)}"


def by_ward(path: Path, seed: int) -> Path:
    """Folders of wards, as a hospital keeps them: read as class folders."""
    rng = np.random.default_rng(seed)
    images = [encoded(Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8))) for _ in range(10 * WARDS)]
    files = {f"train/{ward(number % WARDS)}/{number}.png": image for number, image in enumerate(images)}
    return write_zip(path, {**files, "val/ward aa/unused.png": images[-1]})


def test_class_names_are_seen_before_they_are_public_and_can_be_discarded(owner: Visitor, tmp_path: Path) -> None:
    page = owner.page
    page.goto("/datasets/new")
    page.locator("#file").set_input_files(by_ward(tmp_path / "wards.zip", 31))
    page.get_by_role("button", name="Upload and check").click()
    review = page.get_by_role("region", name=f"{WARDS} class names to publish")
    expect(review).to_be_focused()
    expect(review.get_by_role("row", name="ward aa 10 0")).to_be_visible()
    expect(review).to_contain_text("public for good")
    expect(review).to_contain_text("120 images")
    expect(review).to_contain_text("val/ward aa/unused.png")
    owner.shows("review")

    page.goto("/")
    card = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="wards", exact=True))
    expect(card).to_contain_text("Waits for confirmation")
    expect(card).not_to_contain_text("ward aa")
    page.route("**/datasets/ds_*", _as_if_it_was_being_read, times=1)
    card.get_by_role("link").click()
    expect(page.locator("#said")).to_have_text("The upload is now: Waits for confirmation.")
    expect(page).to_have_title("wards · DataLens")
    expect(page.get_by_role("region", name=f"{WARDS} class names to publish")).to_be_visible()
    owner.shows("review-again")
    dataset = page.url.split("/")[-1]
    page.get_by_role("button", name="Discard").click()
    page.wait_for_url(owner.service.url + "/")
    page.goto(f"/datasets/{dataset}")
    expect(page.get_by_text("were deleted")).to_be_visible()


def _as_if_it_was_being_read(route: Route) -> None:
    answer = route.fetch()
    shown = answer.text().replace('data-state="Waits for confirmation"', 'data-state="Being checked" data-again="0.1"')
    route.fulfill(response=answer, body=shown)


def test_the_review_is_answered_by_the_keyboard_with_the_budget_that_is_known(owner: Visitor, tmp_path: Path) -> None:
    page, path = owner.page, by_ward(tmp_path / "wards.zip", 32)
    with Client(owner.service.url, owner.service.api_key) as client:
        known = client.upload_dataset(path, epsilon=3, confirm_classes=True)
        waiting = client.upload_dataset(path, epsilon=7)
    page.goto(f"/datasets/{waiting.id}")
    page.get_by_role("button", name="Publish these class names").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("have a budget already")
    owner.shows("review-refused")
    page.get_by_label("Lifetime privacy budget ε").fill("")
    page.get_by_role("button", name="Publish these class names").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("of these images were known")).to_be_visible()
    expect(page).to_have_url(re.compile(waiting.id))
    with Client(owner.service.url, owner.service.api_key) as client:
        joined = client.dataset(waiting.id).joined
    assert joined is not None
    assert joined.dataset_ids == (known.id,)


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


def scans(path: Path) -> Path:
    rng = np.random.default_rng(77)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(12):
            pixels = rng.integers(0, 256, (20 + number, 24), dtype=np.uint8)
            archive.writestr(f"{'ab'[number % 2]}/{number}.dcm", dicom(pixels, PatientID=f"P-{number // 2}"))
    return path


def test_images_are_prepared_as_the_page_says(owner: Visitor, tmp_path: Path) -> None:
    page = owner.page
    size = "resized as a whole to 16 × 16 pixels, in 8-bit grey, or colour if one of them is in colour"
    said = f"{size}; of several frames, number 1 is read"
    page.goto("/datasets/new")
    page.locator("#file").set_input_files(scans(tmp_path / "scans.zip"))
    expect(page.get_by_label("Size", exact=True)).to_be_hidden()
    page.get_by_label("Prepare them").check()
    page.get_by_label("Size", exact=True).fill("16")
    expect(page.locator("#preparation-said")).to_contain_text(said)
    page.get_by_text("More settings", exact=True).click()
    page.get_by_label("Most images of one person").fill("2")
    page.get_by_label("What one is called").fill("patient")
    owner.shows("upload-preparation")
    page.get_by_role("button", name="Upload and check").click()
    owner.confirm()
    expect(page.get_by_role("heading", name="Checked and stored")).to_be_visible()
    expect(page.locator("#upload-found")).to_contain_text("6 patients")
    expect(page.locator("#upload-found")).to_contain_text("were resized as a whole to 16 by 16 pixels")
    expect(page.locator("#private-notices")).to_contain_text("brought to the one you chose")
    page.get_by_text("The same by curl or Python").click()
    expect(page.locator("#upload-curl")).to_contain_text("--form file=@scans.zip")
    expect(page.locator("#upload-curl")).to_contain_text("--form-string prepare_size=16")
    call = page.locator("#upload-python").inner_text()
    assert 'prepare_size="16"' in call
    ast.parse(call)
    owner.shows("upload-prepared")


def test_images_of_several_sizes_are_one_offer_which_is_taken(owner: Visitor, tmp_path: Path) -> None:
    page = owner.page
    rng = np.random.default_rng(33)
    sizes = [(int(width), int(height)) for width, height in rng.integers(80, 200, (40, 2))]
    sizes[:2] = [(80, 199), (199, 80)]
    photographs = (rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for width, height in sizes)
    files = {f"{'ab'[n % 2]}/{n}.jpg": encoded(Image.fromarray(one), "JPEG") for n, one in enumerate(photographs)}
    page.goto("/datasets/new")
    page.locator("#file").set_input_files(write_zip(tmp_path / "photographs.zip", files))
    page.get_by_role("button", name="Upload and check").click()
    problem = page.locator("#upload-problem")
    expect(problem).to_contain_text("Your 40 images have different sizes, 80 to 199 pixels: choose one size for all")
    expect(problem).to_contain_text("for example 64, in “Size”")
    expect(page.locator("#upload-files")).to_be_hidden()
    owner.shows("mixed-sizes")
    page.get_by_label("Prepare them").check()
    expect(page.locator("#preparation-said")).to_contain_text("in 8-bit grey, or colour if one of them is in colour")
    page.get_by_role("button", name="Upload and check").click()
    review = page.get_by_role("region", name="2 class names to publish")
    expect(review).to_contain_text("64 × 64")
    expect(review).to_contain_text("what they show was stretched")
    owner.shows("mixed-sizes-prepared")
