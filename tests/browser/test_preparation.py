"""Scans of two patients go in: what will be done is said before, and what was done after."""

import ast
import zipfile
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.visitor import Visitor
from tests.data.dicom_files import dicom

pytestmark = pytest.mark.browser


def scans(path: Path) -> Path:
    rng = np.random.default_rng(77)
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(12):
            pixels = rng.integers(0, 256, (20 + number, 24), dtype=np.uint8)
            archive.writestr(f"{'ab'[number % 2]}/{number}.dcm", dicom(pixels, PatientID=f"P-{number // 2}"))
    return path


def test_images_are_prepared_as_the_page_says(owner: Visitor, tmp_path: Path) -> None:
    page, said = owner.page, "resized as a whole to 16 × 16 pixels, in 8-bit grey; of several frames, number 1 is read"
    page.goto("/datasets/new")
    page.locator("#file").set_input_files(scans(tmp_path / "scans.zip"))
    expect(page.get_by_label("Size", exact=True)).to_be_hidden()
    page.get_by_label("Prepare them").check()
    page.get_by_label("Size", exact=True).fill("16")
    expect(page.locator("#preparation-said")).to_contain_text(said)
    page.get_by_text("More settings", exact=True).click()
    page.get_by_label("Most images of one").fill("2")
    page.get_by_label("Word for one").fill("patient")
    owner.shows("upload-preparation")
    page.get_by_role("button", name="Upload and check").click()
    owner.confirm()
    expect(page.get_by_role("heading", name="Checked and stored")).to_be_visible()
    expect(page.locator("#upload-found")).to_contain_text("6 patients")
    expect(page.locator("#upload-found")).to_contain_text("were resized as a whole to 16 by 16 pixels")
    expect(page.locator("#private-notices")).to_contain_text("brought to the one you chose")
    page.get_by_text("The same by curl or Python").click()
    expect(page.locator("#upload-curl")).to_contain_text("--form file=@scans.zip")
    expect(page.locator("#upload-curl")).to_contain_text("--form prepare_size=16")
    call = page.locator("#upload-python").inner_text()
    assert 'prepare_size="16"' in call
    ast.parse(call)
    owner.shows("upload-prepared")
