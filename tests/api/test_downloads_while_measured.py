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
from api_builders import CONFIRMED, bearer, claimed, npz, training
from starlette.testclient import TestClient

from api.deps import Services
from datalens_service.jobs.execute import execute
from datalens_service.store.access import keys
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
    """Do the job; look at it when its evaluation begins."""
    lease = claimed(services, job_id)
    outcomes: list[BaseException | None] = []

    def observe(phase: str, _value: int, _maximum: int) -> None:
        if phase == "evaluating" and not outcomes:
            outcomes.append(failure_of(look))

    execute(services.database, services.artifacts, services.settings, lease, observe)
    # The job would take a failed assertion for a failure of its own.
    assert outcomes == [None]


def failure_of(look: Callable[[], None]) -> BaseException | None:
    try:
        look()
    except AssertionError as error:
        return error
    return None


def provenance(parquet: bytes) -> dict[str, Any]:
    """What a Parquet file says of its making."""
    metadata = pq.read_schema(io.BytesIO(parquet)).metadata
    return json.loads(next(value for value in metadata.values() if b'"measures"' in value))


def test_everything_can_be_downloaded_while_it_is_measured(client: TestClient, services: Services, job_id: str) -> None:
    early: dict[str, bytes] = {}

    def look() -> None:
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert (job["state"], job["released_at"] is None, job["finished_at"]) == ("running", False, None)
        for name in ("report", "bundle", "samples", "synthetic", "generator"):
            reply = client.get(job["links"][name])
            assert reply.status_code == 200, (name, reply.text)
            early[name] = reply.content
        assert client.get(f"/v1/jobs/{job_id}/dataset").status_code == 200
        assert client.get(f"/v1/jobs/{job_id}/artifacts/synthetic.npz").status_code == 200

    work(services, job_id, look)

    assert pq.read_table(io.BytesIO(early["synthetic"])).num_rows == 60
    assert json.loads(early["report"])["measures"] == []
    assert json.loads(client.get(f"/v1/jobs/{job_id}/report").content)["measures"]
    assert client.get(f"/v1/jobs/{job_id}/generator").content == early["generator"]


def test_a_partner_sees_the_generator_while_it_is_measured(client: TestClient, services: Services, job_id: str) -> None:
    partner = bearer(client, KeyRequest("partner", role=Role.CONSUMER))
    assert client.get("/v1/generators", headers=partner).json()["items"] == []

    def look() -> None:
        [generator] = client.get("/v1/generators", headers=partner).json()["items"]
        assert client.get(f"/v1/generators/{generator['id']}/samples?n=5", headers=partner).status_code == 200

    work(services, job_id, look)
    assert len(client.get("/v1/generators", headers=partner).json()["items"]) == 1


def test_files_made_before_the_figures_are_made_anew_with_them(
    client: TestClient, services: Services, job_id: str
) -> None:
    addresses = {form: f"/v1/jobs/{job_id}/{form}?format=parquet&n=20" for form in ("synthetic", "dataset")}
    early: dict[str, bytes] = {}
    work(
        services,
        job_id,
        lambda: early.update({form: client.get(address).content for form, address in addresses.items()}),
    )

    late = {form: client.get(address).content for form, address in addresses.items()}

    assert [bool(provenance(made["synthetic"])["measures"]) for made in (early, late)] == [False, True]
    reports = [json.loads(zipfile.ZipFile(io.BytesIO(made["dataset"])).read("report.json")) for made in (early, late)]
    assert [bool(report["measures"]) for report in reports] == [False, True]
    packed = client.get(f"/v1/jobs/{job_id}/synthetic?format=npz").content
    assert json.loads(str(np.load(io.BytesIO(packed))["provenance"]))["measures"]


def test_the_page_offers_the_images_while_they_are_measured(
    client: TestClient, services: Services, job_id: str
) -> None:
    key = keys.create(services.database, "visitor")[1]
    pages: list[str] = []

    def look() -> None:
        with TestClient(client.app, base_url="http://service") as visitor:
            visitor.post("/sign-in", data={"key": key})
            pages.append(visitor.get(f"/jobs/{job_id}").text)
            assert visitor.get(f"/jobs/{job_id}/report").status_code == 200

    work(services, job_id, look)
    assert "still being measured" in pages[0]
    assert "Download synthetic images" in pages[0]
    assert re.search(r'id="cancel" data-opens="unmeasured-dialog">Stop measuring', pages[0])
