"""One job of each rival over REST, and the proof that is in its release."""

from pathlib import Path
from typing import Any, Final

import pytest
from api_builders import arrays, npz, send_images, work_off
from sqlalchemy import update
from starlette.testclient import TestClient
from typer.testing import CliRunner

from datalens_service.api.deps import Services
from datalens_service.cli.app import app
from datalens_service.methods.voting.rivals import RIVALS
from datalens_service.store.schema.tables import JobRow

VOTES: Final = {"num_teachers": 8, "images_per_step": 4, "steps": 2, "teacher_batch": 4, "z_dim": 4}
JOBS: Final[dict[str, dict[str, Any]]] = {
    "g_pate": {"votes": {"projections": 4, "bins": 4}, "vote_dimensions": 9, **VOTES},
    "gs_wgan": {"vote_dimensions": 9, **VOTES},
    "pate_gan": {"discriminator": "linear", "warm_start": {"name": "moments", "subspace_dimensions": 4}, **VOTES},
    "dp_gan": {"discriminator": "linear", "steps": 2, "images_per_step": 4, "z_dim": 4, "warm_start": None},
}
STORED: Final[dict[str, dict[str, Any]]] = {
    "g_pate": {
        "name": "g_pate", "num_teachers": 8, "teacher": {"batch": 4, "name": "kernel"}, "shards": "class_pure",
        "images_per_step": 4, "vote_basis": "dct", "vote_dimensions": 9, "noise_stddev": None, "steps": 2, "z_dim": 4,
        "student": "class_networks", "image_step_size": 1.0, "student_learning_rate": None, "student_updates": 1,
        "student_averaging": 0.9, "warm_start": None, "refiner_width": 8, "warm_start_share": 0.95,
        "votes": {"name": "histogram", "projections": 4, "bins": 4, "weight": 64, "reading": "mean"},
        "clip": 0.2, "threshold": "none",
    },
    "gs_wgan": {
        "name": "gs_wgan", "num_teachers": 8, "teacher": {"batch": 4, "name": "kernel"}, "shards": "class_pure",
        "images_per_step": 4, "vote_basis": "dct", "vote_dimensions": 9, "noise_stddev": None, "steps": 2, "z_dim": 4,
        "student": "class_networks", "image_step_size": 4.0, "student_learning_rate": None, "student_updates": 1,
        "student_averaging": 0.9, "warm_start": None, "refiner_width": 8, "warm_start_share": 0.95,
        "votes": {"name": "clipped_rows", "grid": 4096}, "clip": 0.05,
    },
}  # fmt: skip
"""Methods of the same jobs as version 1.0 stored them."""


@pytest.mark.parametrize("method", JOBS)
def test_a_job_of_a_rival_runs_also_as_it_was_stored_and_its_release_verifies(
    client: TestClient, services: Services, dataset_id: str, method: str, tmp_path: Path
) -> None:
    spec = {
        "method": {"name": method, **JOBS[method]}, "epsilon": 10.0, "synthetic_images": 8,
        "evaluation": {"enabled": False},
    }  # fmt: skip
    asked = client.post("/v1/jobs", json={"dataset_id": dataset_id, "spec": spec}).json()
    if method in RIVALS:
        assert asked["spec"]["method"]["name"] == "datalens"
        with services.database.transaction() as session:
            stored = {**asked["spec"], "method": STORED[method]}
            session.execute(update(JobRow).where(JobRow.id == asked["id"]).values(spec=stored))
    work_off(services, asked["id"])
    job = client.get(f"/v1/jobs/{asked['id']}").json()
    assert job["state"] == "succeeded", job["error"]
    assert 9.9 < job["privacy"]["epsilon_spent"] <= 10.0
    assert job["spec"] == asked["spec"]
    for name in (method, asked["spec"]["method"]["name"]):
        found = client.get("/v1/jobs", params={"method": name}).json()
        assert [one["id"] for one in found["items"]] == [asked["id"]]
    copy = client.post(f"/v1/jobs/{asked['id']}:clone", json={"seed": 5, "dataset_id": send_others(client)})
    assert copy.status_code == 202, copy.text
    assert copy.json()["spec"]["method"] == asked["spec"]["method"]

    archive = tmp_path / "release.zip"
    archive.write_bytes(client.get(f"/v1/jobs/{asked['id']}/dataset", params={"format": "npz"}).content)
    verdict = CliRunner().invoke(app, ["verify", str(archive)])
    assert verdict.exit_code == 0, verdict.output
    assert "Everything above holds." in verdict.stdout


def send_others(client: TestClient) -> str:
    """A data set with a budget of its own."""
    return str(send_images(client, npz(images=arrays(1)["images"])).json()["id"])
