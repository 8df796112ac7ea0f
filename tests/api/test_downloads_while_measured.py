"""Downloads over REST and on the page of a job that is still being measured: a real job, looked at from outside."""

import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from api_builders import CONFIRMED, bearer, browser, claimed, npz, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.jobs.execute import execute
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role

MOMENTS = {
    "method": {"name": "moments", "subspace_dimensions": 8},
    "synthetic_images": 60,
    "evaluation": {"epochs": 1, "synthetic_images": 200, "fidelity": []},
}


@pytest.fixture
def job_id(client: TestClient) -> str:
    """A job on 160 training and 40 public test images, which waits for its worker."""
    rng = np.random.default_rng(5)
    arrays = {
        f"{split}_{what}": values
        for split, n in (("train", 160), ("test", 40))
        for what, values in (
            ("images", rng.integers(0, 256, (n, 8, 8), dtype=np.uint8)),
            ("labels", np.arange(n, dtype=np.int64) % 4),
        )
    }
    form = {**CONFIRMED, "epsilon": "10", "public_test": "true"}
    dataset = client.post("/v1/datasets", files={"file": npz(images=None, labels=None, **arrays)}, data=form).json()
    return str(client.post("/v1/jobs", json=training(dataset["id"], **MOMENTS)).json()["id"])


def work(services: Services, job_id: str, look: Callable[[], None]) -> None:
    """Do the job; look at it once, when its evaluation begins."""
    lease = claimed(services, job_id)
    outcomes: list[AssertionError | None] = []

    def observe(phase: str, _value: int, _maximum: int) -> None:
        if phase == "evaluating" and not outcomes:
            outcomes.append(None)
            try:
                look()
            except AssertionError as error:
                outcomes[0] = error

    execute(services.database, services.artifacts, services.settings, lease, observe)
    # The job would take a failed assertion for a failure of its own.
    assert outcomes == [None]


def provenance(parquet: bytes) -> dict[str, Any]:
    """What a Parquet file says of its making."""
    metadata = pq.read_schema(io.BytesIO(parquet)).metadata
    return json.loads(next(value for value in metadata.values() if b'"measures"' in value))


def test_everything_can_be_downloaded_while_it_is_measured_and_is_made_anew_with_the_figures(
    client: TestClient, services: Services, job_id: str
) -> None:
    addresses = {
        form: f"/v1/jobs/{job_id}/{form}?format=parquet&synthetic_images=20" for form in ("synthetic", "dataset")
    }
    early: dict[str, bytes] = {}

    def look() -> None:
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert (job["state"], job["released_at"] is None, job["finished_at"]) == ("running", False, None)
        addresses.update({name: job["links"][name] for name in ("report", "bundle", "samples", "generator")})
        addresses["packed"] = f"/v1/jobs/{job_id}/artifacts/synthetic.npz"
        for name, address in addresses.items():
            reply = client.get(address)
            assert reply.status_code == 200, (name, reply.text)
            early[name] = reply.content

    work(services, job_id, look)
    late = {name: client.get(address).content for name, address in addresses.items()}

    assert late["generator"] == early["generator"]
    assert pq.read_table(io.BytesIO(early["synthetic"])).num_rows == 20
    for made, measured in ((early, False), (late, True)):
        archive = zipfile.ZipFile(io.BytesIO(made["dataset"]))
        for stated in (
            json.loads(made["report"]),
            json.loads(archive.read("report.json")),
            provenance(made["synthetic"]),
        ):
            assert bool(stated["measures"]) is measured
    packed = client.get(f"/v1/jobs/{job_id}/synthetic?format=npz").content
    assert json.loads(str(np.load(io.BytesIO(packed))["provenance"]))["measures"]


def test_a_partner_and_a_page_see_the_images_while_they_are_measured(
    client: TestClient, services: Services, job_id: str
) -> None:
    partner = bearer(client, KeyRequest("partner", role=Role.CONSUMER))
    assert client.get("/v1/generators", headers=partner).json()["items"] == []
    visitor = browser(client)
    pages: list[str] = []

    def look() -> None:
        [generator] = client.get("/v1/generators", headers=partner).json()["items"]
        assert (
            client.get(f"/v1/generators/{generator['id']}/samples?synthetic_images=5", headers=partner).status_code
            == 200
        )
        pages.append(visitor.get(f"/jobs/{job_id}").text)
        assert visitor.get(f"/jobs/{job_id}/report").status_code == 200

    work(services, job_id, look)
    assert "still being measured" in pages[0]
    assert "Download synthetic images" in pages[0]
    assert re.search(r'id="cancel" data-opens="unmeasured-dialog">Stop measuring', pages[0])
    assert len(client.get("/v1/generators", headers=partner).json()["items"]) == 1
