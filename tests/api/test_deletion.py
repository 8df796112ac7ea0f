"""Deleting a data set: nothing private stays on the disk, what was released and what was spent do."""

from pathlib import Path

import pytest
from api_builders import arrays, journal, report, succeed, training
from starlette.testclient import TestClient

from api.deps import Services
from api.main import create_app
from datalens_service.proof.hash_chain import Entry, follow
from datalens_service.settings import Settings
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState

RECORDS = [image.tobytes() for image in arrays()["images"]]
OWNERS_REPORT = report("owner")


@pytest.fixture
def job_id(client: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> str:
    """A job that has succeeded; another one failed and left records in a private file."""
    found: str = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    succeed(services, found, tmp_path)
    failed = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    lease = leases.claim(services.database, failed, "test", 30)
    assert lease is not None
    services.artifacts.put(lease, "seen", b"".join(RECORDS), releasable=False, media_type="text/plain")
    leases.finish(services.database, lease, JobState.FAILED, {"type": "x"})
    return found


def kept(settings: Settings) -> list[bytes]:
    """Contents of all files of the service, its database included."""
    return [path.read_bytes() for path in settings.data_dir.rglob("*") if path.is_file()]


def test_nothing_private_stays_on_the_disk(
    client: TestClient, services: Services, settings: Settings, dataset_id: str, job_id: str
) -> None:
    before = kept(settings)
    assert sum(all(record in content for record in RECORDS) for content in before) == 2
    assert OWNERS_REPORT in before
    assert client.delete(f"/v1/datasets/{dataset_id}").status_code == 200

    after = kept(settings)
    assert not [record for record in RECORDS if any(record in content for content in after)]
    assert OWNERS_REPORT not in after
    assert all(file.releasable for file in services.artifacts.list_artifacts(job_id))
    registered = {file.path for file in services.artifacts.list_artifacts(job_id)}
    assert {path for path in (settings.data_dir / "artifacts").rglob("*") if path.is_file()} == registered


def test_what_was_released_and_what_was_spent_stay(client: TestClient, dataset_id: str, job_id: str) -> None:
    paths = ["report?audience=releasable", "report?audience=releasable&format=html"]
    paths += ["samples.png", "generator", "synthetic?format=npz", "synthetic?n=5"]
    before = [client.get(f"/v1/jobs/{job_id}/{path}").content for path in paths]
    spent = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    entries = journal(client, dataset_id)
    client.delete(f"/v1/datasets/{dataset_id}")

    replies = [client.get(f"/v1/jobs/{job_id}/{path}") for path in paths]
    assert [reply.status_code for reply in replies] == [200] * len(paths)
    assert [reply.content for reply in replies] == before
    account = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    assert account["units"] == spent["units"]
    *earlier, last = journal(client, dataset_id)
    assert (earlier, last["kind"]) == (entries, "delete")
    assert follow(Entry.model_validate(entry) for entry in (*earlier, last)).limit == spent["units"]["limit"]


@pytest.mark.parametrize("path", ["report", "report?format=html", "artifacts/account-proof.json"])
def test_what_was_for_the_owner_is_not_found(client: TestClient, dataset_id: str, job_id: str, path: str) -> None:
    assert client.get(f"/v1/jobs/{job_id}/{path}").status_code == 200
    client.delete(f"/v1/datasets/{dataset_id}")
    reply = client.get(f"/v1/jobs/{job_id}/{path}")
    assert (reply.status_code, reply.json()["code"]) == (404, "not-found")
    assert "deleted with their data set" in reply.json()["detail"]


def test_a_file_that_is_removed_while_it_is_asked_for_is_not_found(
    client: TestClient, services: Services, job_id: str
) -> None:
    services.artifacts.get(job_id, "report.json").path.unlink()
    reply = client.get(f"/v1/jobs/{job_id}/report")
    assert (reply.status_code, reply.json()["code"]) == (404, "not-found")


def test_a_deletion_that_was_interrupted_is_completed_at_the_next_start(
    client: TestClient, services: Services, settings: Settings, dataset_id: str, job_id: str
) -> None:
    datasets.delete(services.database, dataset_id)
    assert OWNERS_REPORT in kept(settings)
    with TestClient(create_app(settings)):
        after = kept(settings)
    assert OWNERS_REPORT not in after
    assert not [record for record in RECORDS if any(record in content for content in after)]
    assert client.get(f"/v1/jobs/{job_id}/generator").status_code == 200


def test_files_of_other_data_sets_stay(client: TestClient, settings: Settings, dataset_id: str, job_id: str) -> None:
    with TestClient(create_app(settings)):
        assert OWNERS_REPORT in kept(settings)
    assert client.get(f"/v1/jobs/{job_id}/report").content == OWNERS_REPORT
