"""One job of each rival over REST, and the proof that is in its release."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from api.deps import Services
from datalens_service.cli.app import app
from datalens_service.jobs.execute import execute
from datalens_service.methods import DpGan, GPate, GsWgan, PateGan
from datalens_service.store.jobs import leases

VOTES: Final = {"num_teachers": 8, "images_per_step": 4, "steps": 2, "teacher_batch": 4, "z_dim": 4}
JOBS: Final[dict[str, dict[str, Any]]] = {
    "g_pate": {"votes": {"projections": 4, "bins": 4}, "vote_dimensions": 9, **VOTES},
    "gs_wgan": {"vote_dimensions": 9, **VOTES},
    "pate_gan": {"discriminator": "linear", "warm_start": {"name": "moments", "subspace_dimensions": 4}, **VOTES},
    "dp_gan": {"discriminator": "linear", "steps": 2, "images_per_step": 4, "z_dim": 4, "warm_start": None},
}


def test_there_is_a_job_of_every_rival() -> None:
    methods = (GPate, GsWgan, PateGan, DpGan)
    assert set(JOBS) == {method.model_fields["name"].default for method in methods}


@pytest.mark.parametrize("method", JOBS)
def test_the_release_of_a_rival_verifies(
    client: TestClient, services: Services, dataset_id: str, method: str, tmp_path: Path
) -> None:
    spec = {
        "method": {"name": method, **JOBS[method]}, "epsilon": 10.0, "synthetic_images": 8,
        "evaluation": {"enabled": False},
    }  # fmt: skip
    reply = client.post("/v1/jobs", json={"dataset_id": dataset_id, "spec": spec})
    assert reply.status_code == 202, reply.text
    lease = leases.claim(services.database, reply.json()["id"], "test", 600)
    assert lease is not None
    execute(services.database, services.artifacts, services.settings, lease)
    job = client.get(f"/v1/jobs/{lease.job_id}").json()
    assert job["state"] == "succeeded", job["error"]
    assert 9.9 < job["privacy"]["epsilon_spent"] <= 10.0

    archive = tmp_path / "release.zip"
    archive.write_bytes(client.get(f"/v1/jobs/{lease.job_id}/dataset", params={"format": "npz"}).content)
    verdict = CliRunner().invoke(app, ["verify", str(archive)])
    assert verdict.exit_code == 0, verdict.output
    assert "Everything above holds." in verdict.stdout
