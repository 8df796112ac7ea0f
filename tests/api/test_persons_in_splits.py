"""Persons with training images and test images: said to the owner, left out of figures, and known to nobody else."""

import io
import json
import zipfile
from typing import Any

import numpy as np
from api_builders import browser, npz_of, send_images, training, work_off
from starlette.testclient import TestClient
from test_validation import register, settled

from datalens_service.api.deps import Services
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs.jobs import JobState

METHOD = {"name": "moments", "subspace_dimensions": 8}
EVALUATION = {"epochs": 1, "synthetic_images": 200, "seeds": 1, "floors": False, "ceiling": False, "fidelity": []}
SHARED, OTHERS = 41, 96


def corners(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    images = rng.integers(0, 60, (count, 8, 8), dtype=np.uint8)
    images[labels == 0, :4] += 150
    images[labels == 1, 4:] += 150
    return images, labels


def with_persons(shared: int = SHARED) -> bytes:
    """Two images of each of 200 persons, and test images of so many of them and of others."""
    (images, labels), (test_images, test_labels) = corners(400, 0), corners(SHARED + OTHERS, 1)
    test = [f"person-{n}" if n < shared else f"other-{n}" for n in range(SHARED + OTHERS)]
    return npz_of(
        images=images,
        labels=labels,
        test_images=test_images,
        test_labels=test_labels,
        train_patient=np.array([f"person-{n // 2}" for n in range(400)]),
        test_patient=np.array(test),
    )


def upload(client: TestClient, content: bytes, **form: Any) -> str:
    reply = send_images(client, content, records_per_unit="2", **form)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def notices(client: TestClient, dataset_id: str) -> dict[str, Any]:
    report = client.get(f"/v1/datasets/{dataset_id}/validation").json()
    return {notice["code"]: notice for notice in report["notices"]}


def do(client: TestClient, services: Services, dataset_id: str) -> str:
    spec = {"method": METHOD, "epsilon": 2.0, "synthetic_images": 64, "evaluation": EVALUATION}
    made = client.post("/v1/jobs", json=training(dataset_id, **spec))
    assert made.status_code == 202, made.text
    assert work_off(services, made.json()["id"]).state is JobState.SUCCEEDED
    return str(made.json()["id"])


def releasable(services: Services, job_id: str) -> dict[str, bytes]:
    """Files that anybody may have, those of archives apart."""
    found: dict[str, bytes] = {}
    for artifact in services.artifacts.list_artifacts(job_id):
        if artifact.releasable:
            content = artifact.path.read_bytes()
            found[artifact.name] = content
            if zipfile.is_zipfile(io.BytesIO(content)):
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    found |= {f"{artifact.name}/{name}": archive.read(name) for name in archive.namelist()}
    return found


def test_a_job_measures_other_persons_and_tells_the_owner_alone(client: TestClient, services: Services) -> None:
    dataset_id = upload(client, with_persons())
    said = notices(client, dataset_id)["persons_in_both"]
    assert said["count"] == SHARED
    assert said["examples"][0] == "person-0: 2 training images and 1 test image"

    job_id = do(client, services, dataset_id)
    report = json.loads(services.artifacts.get(job_id, "report.json").path.read_bytes())
    (caveat,) = report["person_caveats"]
    assert caveat.startswith(
        f"{SHARED} images ({SHARED} persons) of {SHARED + OTHERS} are of persons who have training"
    )
    (accuracy,) = (one for one in report["measures"] if one["name"] == "accuracy")
    assert f"{OTHERS} test images of other persons" in accuracy["protocol"]
    assert sum(line["test_images"] for line in report["per_class"]) == OTHERS
    assert caveat in browser(client, KeyRequest("owner", role=Role.OWNER)).get(f"/jobs/{job_id}").text
    assert caveat in services.artifacts.get(job_id, "report.html").path.read_text()

    operator = browser(client, KeyRequest("operator", role=Role.OPERATOR))
    files = releasable(services, job_id)
    assert {"report-releasable.json", "card.json"} <= files.keys()
    seen = [*files.values(), operator.get(f"/jobs/{job_id}").content, operator.get(f"/datasets/{dataset_id}").content]
    for content in seen:
        for secret in (b"person-0", b"person_caveats", b"of persons who have", f"{OTHERS} test".encode()):
            assert secret not in content


def test_an_audit_attacks_with_test_images_of_other_persons(client: TestClient, services: Services) -> None:
    job_id = do(client, services, upload(client, with_persons()))
    target = {"kind": "released", "job_id": job_id}
    reply = client.post("/v1/audits", json={"target": target, "attacks": ["loss_threshold"]})
    assert reply.status_code == 202, reply.text
    work_off(services, reply.json()["id"])
    result = client.get(f"/v1/audits/{reply.json()['id']}").json()["result"]
    assert result["attacks"][0]["figures"]["non_members"] == OTHERS
    assert f"{SHARED} images ({SHARED} persons)" in result["note"]


def test_too_few_other_persons_are_no_audit(client: TestClient, services: Services) -> None:
    job_id = do(client, services, upload(client, with_persons(shared=SHARED + OTHERS - 10)))
    target = {"kind": "released", "job_id": job_id}
    audit_id = client.post("/v1/audits", json={"target": target, "attacks": ["loss_threshold"]}).json()["id"]
    work_off(services, audit_id)
    audit = client.get(f"/v1/audits/{audit_id}").json()
    assert audit["state"] == "failed"
    assert "persons who have no training images" in audit["error"]["detail"]


def test_a_public_test_split_with_persons_of_training_is_refused(client: TestClient) -> None:
    form = {"records_per_unit": "2", "public_test": "true"}
    refused = send_images(client, with_persons(), **form)
    assert (refused.status_code, refused.json()["code"]) == (422, "persons-in-both-splits")
    assert "leave public_test out" in refused.json()["detail"]
    assert str(SHARED) not in refused.json()["detail"], "numbers stand in members for the sender alone"
    assert refused.json()["bad_count"] == SHARED
    assert refused.json()["bad_files"][0]["name"].startswith("person-0: 2 training images")
    type_of_problem = client.get("/problems/persons-in-both-splits")
    assert type_of_problem.status_code == 200

    later = settled(client, register(client, with_persons(), records_per_unit=2, public_test=True), "/validation")
    assert (later["state"], later["code"], later["bad_count"]) == ("invalid", "persons-in-both-splits", SHARED)
    assert upload(client, with_persons(shared=0), public_test="true")
