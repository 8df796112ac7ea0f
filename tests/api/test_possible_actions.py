"""Links and sentences offer what the service would do in the state that things are in."""

from pathlib import Path
from typing import Any

import pytest
from api_builders import claimed, leave_files, released, sign_in, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.privacy.guarantee import advise_on_budget
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import JobState
from datalens_service.store.ledger.account import JobAccount

STEPS = ("cancel", "pause", "resume")


def job_in(state: str, client: TestClient, services: Services, dataset_id: str, folder: Path) -> dict[str, Any]:
    """A job that somebody did this to, as it is read then."""
    if state == "succeeded":
        return dict(client.get(f"/v1/jobs/{released(client, folder, dataset_id)}").json())
    job: dict[str, Any] = client.post("/v1/jobs", json=training(dataset_id)).json()
    if state != "queued" and "before" not in state:
        lease = leases.claim_next(services.database, "worker", 600)
        assert lease is not None
        if state == "measured":
            leave_files(services, lease, folder)
    for step in STEPS:
        if step in state:
            assert client.post(job["links"][step]).status_code == 202
    return dict(client.get(f"/v1/jobs/{job['id']}").json())


@pytest.mark.parametrize(
    "state",
    ["queued", "pause before it runs", "cancel before it runs", "running", "pause", "cancel", "measured", "succeeded"],
)
def test_a_link_is_there_if_and_only_if_it_can_be_followed(
    client: TestClient, services: Services, dataset_id: str, tmp_path: Path, state: str
) -> None:
    for step in STEPS:
        job = job_in(state, client, services, dataset_id, tmp_path)
        reply = client.post(f"/v1/jobs/{job['id']}:{step}")
        repeats = job["cancel_requested" if step == "cancel" else "pause_requested"] and step != "resume"
        if job["links"][step] is None:
            assert reply.status_code == 409 or repeats, (state, step)
        else:
            assert reply.status_code == 202, (state, step)


@pytest.mark.parametrize(
    ("charged", "said"),
    [
        (False, "ask for less, or wait for running jobs to return what they do not spend"),
        (True, "ask for less"),
    ],
)
def test_a_refused_job_is_told_what_helps(
    client: TestClient, services: Services, dataset_id: str, charged: bool, said: str
) -> None:
    job_id = client.post("/v1/jobs", json=training(dataset_id, epsilon=8)).json()["id"]
    if charged:
        lease = claimed(services, job_id)
        units = jobs.get(services.database, job_id).reserved_units
        JobAccount(services.database, job_id, lease.token).charge(0, "moments.all", units)
        leases.finish(services.database, lease, JobState.FAILED)
    refused = client.post("/v1/jobs", json=training(dataset_id, epsilon=9.5))
    assert refused.status_code == 409
    assert refused.json()["detail"].endswith(f" remains; {said}.")


def test_who_waits_for_jobs_has_some() -> None:
    assert advise_on_budget(1.0, 0.0) == "ask for less"
    assert advise_on_budget(0.0, 1.0) == "wait for running jobs to return what they do not spend"
    assert advise_on_budget(1.0, 1.0) == "ask for less, or wait for running jobs to return what they do not spend"
    assert advise_on_budget(0.0, 0.0) == "nothing of it is left for another job"


def test_a_job_of_a_deleted_dataset_is_not_offered_again(client: TestClient, dataset_id: str, tmp_path: Path) -> None:
    job_id = released(client, tmp_path, dataset_id)
    caller = dict(client.headers)
    sign_in(client)
    offers = ("new-job?like=", "client.submit(")
    shown = client.get(f"/jobs/{job_id}").text
    assert all(offer in shown for offer in offers)
    client.headers.update(caller)
    assert client.delete(f"/v1/datasets/{dataset_id}").is_success
    assert client.post("/v1/jobs", json=training(dataset_id)).status_code == 409
    del client.headers["Authorization"]
    shown = client.get(f"/jobs/{job_id}").text
    assert not any(offer in shown for offer in offers)
