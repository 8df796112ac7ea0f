"""Jobs that a newer version submitted, as this one shows them while both are at work on one database."""

from typing import Any

import pytest
from api_builders import training
from sqlalchemy import update
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.store.jobs import jobs
from datalens_service.store.schema.tables import JOB_FORMAT, JobRow


@pytest.fixture
def job(client: TestClient, dataset_id: str) -> dict[str, Any]:
    return dict(client.post("/v1/jobs", json=training(dataset_id)).json())


def store(services: Services, job_id: str, **changes: Any) -> None:
    """As the next version would have stored it."""
    spec = jobs.get(services.database, job_id).spec | changes
    with services.database.transaction() as session:
        session.execute(update(JobRow).where(JobRow.id == job_id).values(spec=spec, format=JOB_FORMAT + 1))


def test_members_that_are_new_are_left_out(client: TestClient, services: Services, job: dict[str, Any]) -> None:
    evaluation, method = job["spec"]["evaluation"], job["spec"]["method"]
    store(services, job["id"], evaluation=evaluation | {"colour": "red"}, method=method | {"shape": 1}, weight=2)
    read = client.get(f"/v1/jobs/{job['id']}").json()
    assert read["spec"] == job["spec"]
    assert "newer version" in read["waiting_reason"]
    assert [item["id"] for item in client.get("/v1/jobs").json()["items"]] == [job["id"]]
    assert client.get(f"/v1/jobs/{job['id']}/events").status_code == 200


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/{}"])
def test_a_method_that_is_new_is_unavailable_for_now(
    client: TestClient, services: Services, job: dict[str, Any], path: str
) -> None:
    store(services, job["id"], method={"name": "of_tomorrow"})
    answer = client.get(path.format(job["id"]))
    assert (answer.status_code, answer.json()["type"].rpartition("/")[2]) == (503, "store-unavailable")
    assert "newer version" in answer.json()["detail"]


def test_no_copy_is_made_that_could_be_another_job(client: TestClient, services: Services, job: dict[str, Any]) -> None:
    store(services, job["id"], weight=2)
    answer = client.post(f"/v1/jobs/{job['id']}:clone", json={"accept_low_utility": True})
    assert answer.status_code == 503
    assert len(client.get("/v1/jobs").json()["items"]) == 1
