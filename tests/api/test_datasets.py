"""Data sets over HTTP: what is shown, what is kept, what deletion removes.

Deleting a data set: nothing private stays on the disk, what was released and what was spent do.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from api_builders import CONFIRMED, arrays, claimed, journal, npz, released, report, send_images, training
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.api.main import create_app
from datalens_service.base.settings import Settings
from datalens_service.data.intake.stored_dataset import load_dataset
from datalens_service.privacy.accounting import default_delta, limit_units
from datalens_service.proof.hash_chain import Entry, follow
from datalens_service.store.datasets import datasets
from datalens_service.store.jobs import leases
from datalens_service.store.jobs.jobs import JobState


def test_upload_answers_with_the_public_part(client: TestClient) -> None:
    reply = send_images(client, name=" ward ", class_names="a, b,c,d")
    body = reply.json()
    assert reply.status_code == 201
    assert reply.headers["Location"] == f"/v1/datasets/{body['id']}"
    assert (body["name"], body["state"], body["format"], body["has_test_split"]) == ("ward", "ready", "npz", False)
    assert body["schema"] == {
        "channels": 1,
        "height": 8,
        "width": 8,
        "class_names": ["a", "b", "c", "d"],
        "num_units": 200,
        "unit": "record",
        "records_per_unit": 1,
        "classes_per_unit": 1,
        "test_is_public": False,
    }
    delta = default_delta(200)
    assert body["privacy"] == {
        "epsilon_limit": 10.0,
        "delta": delta,
        "epsilon_spent": 0.0,
        "epsilon_reserved": 0.0,
        "epsilon_remaining": 10.0,
        "mu_spent": 0.0,
        "units": {"limit": limit_units(10, delta), "charged": 0, "reserved": 0, "remaining": limit_units(10, delta)},
        "frozen_reason": None,
    }
    assert (body.pop("notices"), body.pop("review")) == ([], None)
    assert client.get(reply.headers["Location"]).json() == body


def test_records_are_kept_as_they_came_and_the_upload_is_not(client: TestClient, services: Services) -> None:
    dataset_id = send_images(client, epsilon="1").json()["id"]
    stored = datasets.get(services.database, dataset_id)
    assert stored.partition_key
    kept = load_dataset(Path(stored.records_path))
    np.testing.assert_array_equal(kept.train.images[..., 0], arrays()["images"])
    np.testing.assert_array_equal(kept.train.labels, arrays()["labels"])
    assert list((services.settings.data_dir / "incoming").iterdir()) == []


def test_list_is_cut_into_portions(client: TestClient) -> None:
    ids = []
    for seed in range(3):
        content = npz(images=arrays(seed)["images"])
        ids.append(send_images(client, content, epsilon="1").json()["id"])
    first = client.get("/v1/datasets", params={"limit": 2}).json()
    second = client.get("/v1/datasets", params={"limit": 2, "after": first["next_cursor"]}).json()
    assert [item["id"] for item in first["items"] + second["items"]] == ids[::-1]
    assert (first["has_more"], second["has_more"], second["next_cursor"]) == (True, False, None)


def test_nothing_private_is_shown(client: TestClient, services: Services, dataset_id: str) -> None:
    stored = datasets.get(services.database, dataset_id)
    shown = json.dumps(
        [client.get(f"/v1/datasets/{dataset_id}{part}").json() for part in ("", "/privacy", "/privacy/entries")]
    )
    assert stored.partition_key
    assert stored.partition_key.hex() not in shown
    assert stored.records_path not in shown


PATIENTS = np.array([f"patient {index // 4}" for index in range(200)])


def test_units_of_several_records_are_declared_and_shown(client: TestClient) -> None:
    declared = {**CONFIRMED, "epsilon": "10", "unit": "patient", "records_per_unit": "4", "classes_per_unit": "4"}
    reply = client.post("/v1/datasets", files={"file": npz(groups=PATIENTS)}, data=declared)
    assert reply.status_code == 201
    schema = reply.json()["schema"]
    assert (schema["unit"], schema["num_units"]) == ("patient", 50)
    assert (schema["records_per_unit"], schema["classes_per_unit"]) == (4, 4)
    assert reply.json()["privacy"]["delta"] == default_delta(50)
    single = send_images(client, npz(images=arrays(1)["images"]))
    costs = []
    for dataset in (single, reply):
        body = training(dataset.json()["id"], delta=1e-5)
        costs.append(client.post("/v1/plans", json=body).json()["cost"])
    noise = [cost["releases"][1]["noise_stddev"] for cost in costs]
    assert noise[1] == pytest.approx(4 * noise[0], rel=1e-3)


def test_units_that_were_not_declared_well_are_refused(client: TestClient) -> None:
    for groups, declared, code in [
        (PATIENTS, {}, "dataset-invalid"),
        (PATIENTS, {"records_per_unit": "3"}, "dataset-invalid"),
        (None, {"records_per_unit": "4"}, "dataset-invalid"),
        (PATIENTS, {"unit": "patient"}, "invalid-input"),
        (PATIENTS, {"records_per_unit": "0"}, "invalid-input"),
        (PATIENTS, {"records_per_unit": "4", "unit": "<b>"}, "invalid-input"),
    ]:
        reply = client.post("/v1/datasets", files={"file": npz(groups=groups)}, data={"epsilon": "10", **declared})
        assert (reply.status_code, reply.json()["type"].rpartition("/")[2]) == (422, code), declared
        assert client.get("/v1/datasets").json()["items"] == []


RECORDS = [image.tobytes() for image in arrays()["images"]]
OWNERS_REPORT = report("owner")


@pytest.fixture
def job_id(client: TestClient, services: Services, dataset_id: str, tmp_path: Path) -> str:
    """A job that has succeeded; another one failed and left records in a private file."""
    found = released(client, tmp_path, dataset_id)
    failed = client.post("/v1/jobs", json=training(dataset_id)).json()["id"]
    lease = claimed(services, failed)
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
    paths += ["samples.png", "generator", "synthetic?format=npz", "synthetic?synthetic_images=5"]
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
