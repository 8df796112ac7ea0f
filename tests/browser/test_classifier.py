"""The page of a classifier job: a table of the owner's test images instead of samples."""

import re
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from datalens_service import Client
from tests.browser.visitor import Visitor
from tests.cli.service import RunningService
from tests.models.onnx_files import stored_encoder

pytestmark = pytest.mark.browser
METHOD = {"name": "dp_sgd", "architecture": "linear", "steps": 12, "learning_rate": 2.0, "momentum": 0.5}


def test_the_owner_sees_which_class_is_taken_for_which(
    owner: Visitor, service: RunningService, upload_with_test_images: Path, tmp_path: Path
) -> None:
    with Client(service.url, service.api_key) as client:
        dataset = client.upload_dataset(upload_with_test_images, epsilon=10, confirm_classes=True)
        job = client.submit(dataset.id, {"method": METHOD, "epsilon": 4.0}).wait()
        assert job.state == "succeeded", job.error
        [classifier] = [one for one in client.classifiers() if one.job_id == job.id]
        assert client.get_classifier(classifier.id).card is not None
        _chooses_an_encoder(owner, dataset.id)

    page = owner.page
    page.goto(f"/jobs/{job.id}")
    table = page.locator("#confusion table")
    expect(table.locator("tbody tr")).to_have_count(10)
    counts = [int(cell) for cell in table.locator("tbody td").all_text_contents()]
    assert sum(counts) == 359
    expect(page.locator("img.grid")).to_have_count(0)
    expect(page.get_by_text("not to be passed on: the guarantee")).to_be_visible()
    owner.shows("classifier-job")
    page.get_by_label("Licence").select_option("CC0-1.0")
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download as a model to publish").click()
    coming.value.save_as(tmp_path / "model.zip")
    with zipfile.ZipFile(tmp_path / "model.zip") as archive:
        assert "CC0-1.0" in archive.read("LICENSE").decode()
    page.goto("/releases")
    owner.shows("classifier-release")


def _chooses_an_encoder(owner: Visitor, dataset_id: str) -> None:
    encoder, file = stored_encoder()
    page = owner.page
    page.goto(f"/datasets/{dataset_id}/new-job")
    page.get_by_text("More settings", exact=True).click()
    page.locator("#encoder-file").set_input_files(file)
    expect(page.locator("#encoder-note")).to_contain_text(f"{encoder.features} features")
    expect(page.locator("#price-part")).to_contain_text("An encoder serves")
    page.locator('input[name="preset"][value="classifier"]').check()
    expect(page.locator("#submit-job")).to_have_attribute("data-body", re.compile(encoder.sha256))
    owner.shows("plan-encoder")
