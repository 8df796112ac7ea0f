"""A private classifier over REST, from digits to an ONNX file, beside a generator from the same account."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from api_builders import npz_of, send_images, work_off
from starlette.testclient import TestClient

import datalens_service as datalens
import datalens_service.jobs.execute
from datalens_service.api.deps import Services
from datalens_service.data.dataset import Upload
from datalens_service.data.digits import digits
from datalens_service.proof import release_verification
from tests.models.onnx_files import onnx_encoder, stored_encoder

METHOD = {"name": "dp_sgd", "architecture": "linear", "steps": 12, "learning_rate": 2.0, "momentum": 0.5}
SPEC = {"method": METHOD, "epsilon": 4.0}


@pytest.fixture(scope="module")
def data() -> Upload:
    return digits()


def uploaded(client: TestClient, data: Upload) -> str:
    splits = {"train_images": data.train.images, "train_labels": data.train.labels}
    assert data.test is not None
    reply = send_images(client, npz_of(**splits, test_images=data.test.images, test_labels=data.test.labels))
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def done(client: TestClient, services: Services, dataset_id: str, spec: dict[str, Any]) -> dict[str, Any]:
    """A job, planned, submitted and done in this process."""
    request = {"dataset_id": dataset_id, "spec": spec}
    assert client.post("/v1/plans", json=request).json()["fits"] is True
    reply = client.post("/v1/jobs", json=request)
    assert reply.status_code == 202, reply.text
    done = work_off(services, reply.json()["id"])
    job = dict(client.get(f"/v1/jobs/{done.id}").json())
    assert job["state"] == "succeeded", job["error"]
    return job


def saved(client: TestClient, address: str, path: Path) -> Path:
    reply = client.get(address)
    assert reply.status_code == 200, reply.text
    path.write_bytes(reply.content)
    return path


@pytest.mark.usefixtures("seeded_entropy")
def test_digits_become_a_private_classifier_that_other_programs_run(
    client: TestClient, services: Services, data: Upload, tmp_path: Path
) -> None:
    dataset_id = uploaded(client, data)
    job = done(client, services, dataset_id, SPEC)
    assert data.test is not None
    images, labels = data.test.images[:200], data.test.labels[:200]

    model = datalens.Classifier.load(saved(client, job["links"]["classifier"], tmp_path / "c.safetensors"))
    graph = onnxruntime.InferenceSession(saved(client, job["links"]["onnx"], tmp_path / "c.onnx"))
    ours = model.predict(images)
    (theirs,) = graph.run(None, {graph.get_inputs()[0].name: images})
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.mean(ours.argmax(axis=1) == labels) > 0.5

    reply = client.post(job["links"]["predictions"], files={"file": npz_of(images=images)})
    assert reply.status_code == 200, reply.text
    over_rest = np.array([item["probabilities"] for item in reply.json()["items"]])
    np.testing.assert_allclose(over_rest, ours, atol=1e-6)

    _check_report(client, job, data)
    _check_archive(saved(client, job["links"]["archive"], tmp_path / "release.zip"))
    _check_account(client, services, dataset_id, job)


def _check_report(client: TestClient, job: dict[str, Any], data: Upload) -> None:
    owner = client.get(f"/v1/jobs/{job['id']}/report").json()
    others = client.get(f"/v1/jobs/{job['id']}/report", params={"audience": "releasable"}).json()
    assert data.test is not None
    assert sum(map(sum, owner["confusion"]["counts"])) == len(data.test.labels)
    assert [measure["name"] for measure in owner["measures"]] == ["classifier_accuracy"]
    assert others["measures"] == []
    assert "confusion" not in others


def _check_archive(path: Path) -> None:
    verdict = release_verification.verify_path(path)
    assert verdict.holds, verdict.contradiction
    changed = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            target.writestr(name, content[:-1] + b"!" if name == "classifier.onnx" else content)
    verdict = release_verification.verify_path(changed)
    assert not verdict.holds
    assert "classifier.onnx" in (verdict.contradiction or "")


def _check_account(client: TestClient, services: Services, dataset_id: str, classifier: dict[str, Any]) -> None:
    """A generator from the same records: both are paid from one account, and both proofs hold."""
    spec = {"method": "moments", "epsilon": 1.0, "synthetic_images": 20, "evaluation": {"enabled": False}}
    generator = done(client, services, dataset_id, spec)
    spent = [job["privacy"]["epsilon_spent"] for job in (classifier, generator)]
    account = client.get(f"/v1/datasets/{dataset_id}/privacy").json()
    assert max(spent) < account["epsilon_spent"] < sum(spent)
    for job in (classifier, generator):
        proof = client.get(f"/v1/jobs/{job['id']}/bundle").content
        verdict = release_verification.proof_verification.verify(proof)
        assert verdict.holds, verdict.contradiction
        assert json.loads(proof)["card"]["synthetic"] is (job is generator)


def test_a_plan_of_a_classifier_reads_nothing_and_reserves_nothing(client: TestClient, data: Upload) -> None:
    dataset_id = uploaded(client, data)
    plan = client.post("/v1/plans", json={"dataset_id": dataset_id, "spec": SPEC}).json()
    assert (plan["cost"]["steps"], plan["cost"]["images"]) == (METHOD["steps"], 0)
    assert client.get(f"/v1/datasets/{dataset_id}/privacy").json()["epsilon_reserved"] == 0


def test_a_classifier_from_noisy_directions_is_planned_made_and_verified(
    client: TestClient, services: Services, data: Upload, tmp_path: Path
) -> None:
    dataset_id = uploaded(client, data)
    directions = {"noise": "von_mises_fisher", "sampling": "partition", "batch": 100, "steps": 4}
    spec = {"method": {"name": "dp_sgd", "architecture": "linear", **directions}, "epsilon": 4.0}
    plan = client.post("/v1/plans", json={"dataset_id": dataset_id, "spec": spec}).json()["cost"]
    assert plan["directions"]["passes"] == 1
    assert plan["directions"]["pure_epsilon_replace_one"] > 2 * plan["directions"]["kappa"] - 1e-3
    job = done(client, services, dataset_id, spec)
    assert 3.99 < job["privacy"]["epsilon_spent"] <= 4.0
    report = client.get(f"/v1/jobs/{job['id']}/report").json()
    assert "real arithmetic" in json.dumps(report["privacy"]["assumptions"])
    assert "Von Mises-Fisher" in report["privacy"]["noise"]
    verdict = release_verification.verify_path(saved(client, job["links"]["archive"], tmp_path / "release.zip"))
    assert verdict.holds, verdict.contradiction


@pytest.mark.usefixtures("seeded_entropy")
def test_an_uploaded_encoder_serves_a_classifier_that_holds_and_names_it(
    client: TestClient, services: Services, data: Upload, tmp_path: Path
) -> None:
    encoder, file = stored_encoder()
    reply = client.post("/v1/encoders", files={"file": file.read_bytes()})
    assert reply.status_code == 200, reply.text
    assert reply.json() == client.post("/v1/encoders", files={"file": file.read_bytes()}).json()
    assert reply.json() == encoder.model_dump(mode="json")
    method = {"name": "scattering", "encoder": reply.json(), "steps": 20, "learning_rate": 30}
    job = done(client, services, uploaded(client, data), {"method": method, "epsilon": 8.0})
    model = datalens.Classifier.load(saved(client, job["links"]["classifier"], tmp_path / "c.safetensors"))
    assert data.test is not None
    assert np.mean(model.predict(data.test.images).argmax(axis=1) == data.test.labels) > 0.2
    card = json.loads(saved(client, f"/v1/jobs/{job['id']}/artifacts/card.json", tmp_path / "card.json").read_text())
    assert card["encoder"] == {"name": "onnx", "sha256": encoder.sha256}
    assert encoder.sha256 in client.get(f"/v1/jobs/{job['id']}/artifacts/privacy.json").text
    report = client.get(f"/v1/jobs/{job['id']}/report", params={"audience": "releasable"}).text
    assert encoder.sha256 in report


def test_a_bad_file_is_a_clear_problem_and_is_not_kept(client: TestClient, services: Services) -> None:
    for content in (b"no graph", onnx_encoder(channels=1)):
        reply = client.post("/v1/encoders", files={"file": content})
        assert (reply.status_code, reply.headers["content-type"]) == (422, "application/problem+json")
        assert reply.json()["type"].endswith("invalid-input")
    assert not list(services.settings.data_dir.rglob("encoder.onnx"))


def test_an_encoder_that_is_not_here_is_refused_or_ends_a_job_before_anything_is_charged(
    client: TestClient, services: Services, data: Upload
) -> None:
    encoder, file = stored_encoder()
    spec = {"method": {"name": "scattering", "encoder": encoder.model_dump(mode="json")}, "epsilon": 8.0}
    request = {"dataset_id": uploaded(client, data), "spec": spec}
    for address in ("/v1/plans", "/v1/jobs"):
        reply = client.post(address, json=request)
        assert (reply.status_code, reply.json()["detail"]) == (404, "There is no such public file; upload it first.")
    client.post("/v1/encoders", files={"file": file.read_bytes()})
    job = client.post("/v1/jobs", json=request).json()
    next(services.settings.data_dir.rglob("encoder.onnx")).unlink()
    work_off(services, job["id"])
    ended = client.get(f"/v1/jobs/{job['id']}").json()
    assert (ended["state"], ended["error"]["type"].rpartition("/")[2]) == ("failed", "not-found")
    assert ended["privacy"]["epsilon_spent"] == 0


def test_an_encoder_needs_its_hash_and_its_features(client: TestClient) -> None:
    for encoder in ("onnx", {"name": "onnx", "sha256": "no", "features": 3}, {"name": "onnx", "sha256": "0" * 64}):
        spec = {"method": {"name": "scattering", "encoder": encoder}, "epsilon": 1}
        assert client.post("/v1/plans", json={"dataset_id": "ds_1", "spec": spec}).status_code == 422
