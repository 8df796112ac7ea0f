"""Jobs that start from images their owner declared public: who may be used, and what is said of them."""

import html
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import browser, npz_of, send_images, work_off
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.data.digits import digits
from datalens_service.proof import release_verification
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.schema.tables import DatasetRow
from tests.api.test_classifier_job import done, saved

METHOD = {"name": "dp_sgd", "architecture": "mlp", "steps": 2, "learning_rate": 0.01}


NO_BRACES = str.maketrans("{}", "()")
LICENCE = "CC-BY-4.0, by {those} who wrote them"


def send(client: TestClient, images: np.ndarray, labels: np.ndarray, **form: str) -> Any:
    return send_images(client, npz_of(images=images, labels=labels), **form)


@pytest.fixture
def halves(client: TestClient) -> tuple[str, str]:
    """Ids of a private and of a public data set of digits."""
    train = digits().train
    private = send(client, train.images[::2], train.labels[::2])
    public = send(
        client,
        train.images[1::2],
        train.labels[1::2],
        public_records="true",
        name="open digits",
        public_license=LICENCE,
    )
    assert (private.status_code, public.status_code) == (201, 201), private.text + public.text
    assert public.json()["schema"]["records_are_public"] is True
    return private.json()["id"], public.json()["id"]


def test_a_job_learns_from_public_images_and_says_so(
    client: TestClient, services: Services, halves: tuple[str, str], tmp_path: Path
) -> None:
    private, public = halves
    spec = {"method": METHOD, "epsilon": 0.5}
    alone = done(client, services, private, spec)
    helped = done(client, services, private, spec | {"public_data": public})
    *others, said = helped["cost"]["warnings"]
    assert helped["cost"] == alone["cost"] | {"warnings": [*others, said]}, "no price changes"
    assert others == alone["cost"]["warnings"]
    assert all(named in said for named in ("open digits", public, LICENCE))
    assert said in html.unescape(browser(client).get(f"/jobs/{helped['id']}").text)
    report = client.get(f"/v1/jobs/{helped['id']}/report", params={"audience": "releasable"}).json()
    assert report["privacy"]["public_data"]["public_images_used"] is True
    sentence = report["privacy"]["public_data"]["provenance"]
    assert "open digits" in sentence
    assert "guarantee" in sentence
    assert sentence in report["privacy"]["scope"]["public"]
    card = client.get(f"/v1/jobs/{helped['id']}/artifacts/card.json").json()
    assert card["public_images"]["images"] == len(digits().train.images[1::2])
    assert "public_images" not in client.get(f"/v1/jobs/{alone['id']}/artifacts/card.json").json()
    assert card["public_images"]["sha256"] in sentence
    assert card["public_images"]["name"] == "open digits"
    archive = saved(client, helped["links"]["archive"], tmp_path / "release.zip")
    with zipfile.ZipFile(archive) as files:
        page = next(files.read(name).decode() for name in files.namelist() if name.endswith("README.md"))
    assert "open digits" in page
    assert card["public_images"]["license"] == LICENCE
    assert "who wrote them" in page
    assert LICENCE.translate(NO_BRACES) in sentence
    verdict = release_verification.verify_path(archive)
    assert verdict.holds, verdict.contradiction
    assert accuracy(client, helped) > accuracy(client, alone) + 0.2


def accuracy(client: TestClient, job: dict[str, Any]) -> float:
    test = digits().train
    answer = client.post(job["links"]["predictions"], files={"file": npz_of(images=test.images[:400])}).json()
    probabilities = np.array([item["probabilities"] for item in answer["items"]])
    return float((probabilities.argmax(axis=1) == test.labels[:400]).mean())


def test_a_private_data_set_is_never_taken_for_public(client: TestClient, halves: tuple[str, str]) -> None:
    private, public = halves
    body = {"dataset_id": public, "spec": {"method": METHOD, "epsilon": 1.0, "public_data": private}}
    for address in ("/v1/plans", "/v1/jobs"):
        refused = client.post(address, json=body)
        assert refused.status_code == 422
        assert "is private" in refused.json()["detail"]
    body["spec"]["public_data"] = "ds_" + "0" * 32
    assert client.post("/v1/plans", json=body).status_code == 404


def test_what_became_private_after_all_is_not_read(
    client: TestClient, services: Services, halves: tuple[str, str]
) -> None:
    """The declaration is asked again when the job runs, whatever the request passed."""
    private, public = halves
    spec = {"method": METHOD, "epsilon": 1.0, "public_data": public}
    job_id = client.post("/v1/jobs", json={"dataset_id": private, "spec": spec}).json()["id"]
    with services.database.transaction() as session:
        row = session.get_one(DatasetRow, public)
        row.schema = {**row.schema, "records_are_public": False}
    job = work_off(services, job_id)
    assert job.state == JobState.FAILED
    assert job.charged_units == 0


def test_a_licence_is_of_public_images_and_without_one_that_is_said(
    client: TestClient, services: Services, halves: tuple[str, str]
) -> None:
    train = digits().train
    refused = send(client, train.images[:60], train.labels[:60], public_license="CC0")
    assert refused.status_code == 422
    assert "needs public_records" in refused.text
    public = send(client, train.images[1::3] // 2, train.labels[1::3], public_records="true").json()["id"]
    job = done(client, services, halves[0], {"method": METHOD, "epsilon": 0.5, "public_data": public})
    card = client.get(f"/v1/jobs/{job['id']}/artifacts/card.json").json()
    assert "license" not in card["public_images"]
    report = client.get(f"/v1/jobs/{job['id']}/report", params={"audience": "releasable"}).json()
    assert "no licence was declared" in report["privacy"]["public_data"]["provenance"]


def test_images_that_are_private_cannot_be_declared_public(client: TestClient, halves: tuple[str, str]) -> None:
    train = digits().train
    refused = send(client, train.images[:60], train.labels[:60], public_records="true")
    assert refused.status_code == 422
    assert "cannot be declared public" in refused.json()["detail"]
    # Public images may be uploaded again as public ones.
    again = send(client, train.images[1:301:2], train.labels[1:301:2], public_records="true")
    assert again.status_code == 201, again.text


@pytest.mark.parametrize(
    ("method", "says"),
    [({"name": "moments"}, "moments does not start from public images"), (METHOD, "measure 16x16x1")],
)
def test_what_cannot_start_from_them_is_refused(
    client: TestClient, halves: tuple[str, str], method: dict[str, Any], says: str
) -> None:
    private, public = halves
    if method is METHOD:
        larger = np.random.default_rng(0).integers(0, 255, (40, 16, 16)).astype(np.uint8)
        public = send(client, larger, np.arange(40) % 2, public_records="true").json()["id"]
    body = {"dataset_id": private, "spec": {"method": method, "epsilon": 1.0, "public_data": public}}
    refused = client.post("/v1/plans", json=body)
    assert refused.status_code == 422
    assert says in refused.text


def test_public_data_that_was_deleted_is_refused(
    client: TestClient, services: Services, halves: tuple[str, str]
) -> None:
    private, public = halves
    assert client.delete(f"/v1/datasets/{public}").status_code == 200
    assert datasets.get(services.database, public).schema.records_are_public
    body = {"dataset_id": private, "spec": {"method": METHOD, "epsilon": 1.0, "public_data": public}}
    assert client.post("/v1/plans", json=body).status_code == 409


def test_images_that_are_public_and_private_are_no_start(client: TestClient) -> None:
    """Such a data set joins the account of the public one, and nothing would protect what is in both."""
    train = digits().train
    public = send(client, train.images[:400], train.labels[:400], public_records="true").json()["id"]
    private = send(client, train.images[200:600], train.labels[200:600])
    assert private.status_code == 201, private.text
    for trained_on in (private.json()["id"], public):
        body = {"dataset_id": trained_on, "spec": {"method": METHOD, "epsilon": 1.0, "public_data": public}}
        refused = client.post("/v1/plans", json=body)
        assert refused.status_code == 422
        assert "they share images" in refused.json()["detail"]
