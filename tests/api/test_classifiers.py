"""Classifiers over REST: their files, their archive, and predictions on images that somebody sends."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from api_builders import SIDE, arrays, browser, npz, npz_of, released, succeed_classifier, training, zipped
from PIL import Image
from starlette.testclient import TestClient

from datalens_service.api.deps import Services
from datalens_service.base.errors import WorkerUnavailable
from datalens_service.data.dataset import Schema
from datalens_service.methods import Moments
from datalens_service.services import predictions
from datalens_service.store.access.keys import KeyRequest
from datalens_service.store.access.roles import Role
from datalens_service.store.jobs import released_models
from datalens_service.store.jobs.released_models import CLASSIFIER
from tests.data import builders
from tests.models.toy_models import Brightness

SCHEMA = Schema(channels=1, height=SIDE, width=SIDE, class_names=("0", "1", "2", "3"), num_units=200)
IMAGES = arrays()["images"][:3]


@pytest.fixture(autouse=True)
def _classifier_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a method that makes classifiers; predicted in this process, by a model that sees brightness."""

    def run(_program: str, classifier: Path, images: Path, out: Path, **_: int) -> None:
        assert classifier.read_bytes() == b"weights"
        np.save(out, Brightness(SCHEMA).predict(np.load(images)))

    monkeypatch.setattr(Moments, "result", "classifier")
    monkeypatch.setattr(predictions, "run_program", run)


@pytest.fixture
def job_id(client: TestClient, services: Services, dataset_id: str) -> str:
    made = client.post("/v1/jobs", json=training(dataset_id))
    assert made.status_code == 202, made.text
    job_id = str(made.json()["id"])
    succeed_classifier(services, job_id)
    return job_id


@pytest.fixture
def classifier_id(job_id: str) -> str:
    return released_models.build_id(job_id, CLASSIFIER)


def predicted(client: TestClient, classifier_id: str, *, path: str = "", **request: Any) -> dict[str, Any]:
    reply = client.post(f"/v1/classifiers/{classifier_id}/predictions{path}", **request)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    return builders.encoded(Image.fromarray(pixels), kind)


def test_a_job_leaves_a_classifier(client: TestClient, job_id: str, classifier_id: str) -> None:
    [item] = client.get("/v1/classifiers").json()["items"]
    shown = client.get(item["links"]["self"]).json()
    assert (item["id"], item["card"], shown["card"]) == (classifier_id, None, {"job": job_id})
    assert client.get(item["links"]["safetensors"]).content == b"weights"
    assert client.get(item["links"]["onnx"]).content == b"graph"
    assert client.get("/v1/generators").json()["items"] == []
    assert client.get(f"/v1/generators/{classifier_id}").status_code == 404
    usage = client.get("/v1/usage").json()
    assert (usage["generators"], usage["classifiers"]) == (0, 1)


def test_links_of_a_job_lead_to_what_it_made(client: TestClient, job_id: str) -> None:
    links = client.get(f"/v1/jobs/{job_id}").json()["links"]
    assert links["generator"] is links["synthetic"] is links["samples"] is None
    for name in ("classifier", "onnx", "archive"):
        assert client.get(links[name]).status_code in (200, 304), name
    for path in ("generator", "synthetic", "samples.png", "dataset"):
        refused = client.get(f"/v1/jobs/{job_id}/{path}")
        assert refused.status_code == 409, path
        assert "classifier" in refused.json()["detail"]


def test_a_generator_job_has_no_classifier(
    client: TestClient, dataset_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Moments, "result", "generator")
    job_id = released(client, tmp_path, dataset_id)
    for path in ("classifier", "classifier.onnx", "classifier.zip"):
        assert client.get(f"/v1/jobs/{job_id}/{path}").status_code == 409
    assert client.get(f"/v1/jobs/{job_id}").json()["links"].get("classifier") is None


def test_predictions_are_the_same_in_every_format(client: TestClient, classifier_id: str) -> None:
    expected = Brightness(SCHEMA).predict(IMAGES[..., np.newaxis])
    pictures = {f"{index}.png": encoded(image) for index, image in enumerate(IMAGES)}
    requests = {
        "npz": {"files": {"file": npz_of(images=IMAGES)}},
        "npz x": {"files": {"file": npz_of(x=IMAGES)}},
        "zip": {"files": {"file": zipped(pictures)}},
        "json": {"path": ":from-pixels", "json": {"images": IMAGES.tolist()}},
        "json with a channel": {"path": ":from-pixels", "json": {"images": IMAGES[..., np.newaxis].tolist()}},
        "json of earlier clients": {"json": {"images": IMAGES.tolist()}},
    }
    for name, request in requests.items():
        answer = predicted(client, classifier_id, **request)
        assert answer["class_names"] == ["0", "1", "2", "3"]
        found = np.array([item["probabilities"] for item in answer["items"]])
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
        assert [item["file"] for item in answer["items"]] == (sorted(pictures) if name == "zip" else [None] * 3)
        assert [item["class_name"] for item in answer["items"]] == [str(int(row.argmax())) for row in expected]
    [single] = predicted(client, classifier_id, files={"file": encoded(IMAGES[0])})["items"]
    np.testing.assert_allclose(single["probabilities"], expected[0], atol=1e-6)


def test_an_array_with_labels_is_predicted_without_them(client: TestClient, classifier_id: str) -> None:
    assert len(predicted(client, classifier_id, files={"file": npz()})["items"]) == len(arrays()["images"])


def test_a_file_that_cannot_be_used_is_refused_with_a_sentence(client: TestClient, classifier_id: str) -> None:
    for file, status, word in [
        (b"no image", 422, "PNG"),
        (encoded(np.zeros((9, 9), np.uint8)), 422, "8 by 8"),
        (encoded(np.zeros((SIDE, SIDE, 3), np.uint8)), 422, "grey"),
        (zipped({"a.txt": b"text"}), 422, "PNG"),
        (zipped({}), 422, "PNG"),
        (npz_of(images=np.array([[[{}]]], dtype=object)), 422, "objects"),
        (npz_of(images=np.zeros((2, SIDE, SIDE), np.uint8), x=np.zeros((2, SIDE, SIDE), np.uint8)), 422, "one array"),
        (npz_of(images=np.zeros((1_001, SIDE, SIDE), np.uint8)), 422, "1,000"),
        (zipped({f"{i}.png": encoded(IMAGES[0]) for i in range(1_001)}), 422, "1,000"),
    ]:
        reply = client.post(f"/v1/classifiers/{classifier_id}/predictions", files={"file": file})
        assert reply.status_code == status, reply.text
        assert word in reply.json()["detail"]


def test_pixels_are_whole_numbers_of_a_byte(client: TestClient, classifier_id: str) -> None:
    for pixel in [256, -1, 1.5, 1.0, "7", True, None, [], [1, 2, 3, 4, 5]]:
        images = IMAGES.tolist()
        images[0][0][0] = pixel
        reply = client.post(f"/v1/classifiers/{classifier_id}/predictions:from-pixels", json={"images": images})
        assert reply.status_code == 422, reply.text


def test_images_of_another_shape_are_refused(client: TestClient, classifier_id: str) -> None:
    for images in [[], [[]], [[[1, 2], [3]]], [[[0] * 9] * 9]]:
        reply = client.post(f"/v1/classifiers/{classifier_id}/predictions:from-pixels", json={"images": images})
        assert reply.status_code == 422, reply.text


def test_images_are_neither_kept_nor_logged(
    client: TestClient, services: Services, classifier_id: str, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "patient-4711"
    files = {"file": (f"{canary}.zip", zipped({f"{canary}.png": encoded(IMAGES[0])}))}
    [item] = predicted(client, classifier_id, files=files)["items"]
    assert item["file"] == f"{canary}.png"
    bad = client.post(
        f"/v1/classifiers/{classifier_id}/predictions", files={"file": zipped({f"{canary}.png": b"\x89PNG cut off"})}
    )
    assert bad.status_code == 422
    assert canary not in "".join(capfd.readouterr())
    for folder in ("predictions", "incoming"):
        assert {path.name for path in (services.settings.data_dir / folder).iterdir()} <= {".lock"}
    assert (services.settings.data_dir / "predictions" / ".lock").stat().st_size == 0


def test_answers_are_for_whoever_asked(client: TestClient, classifier_id: str) -> None:
    reply = client.post(f"/v1/classifiers/{classifier_id}/predictions", files={"file": npz_of(images=IMAGES)})
    assert "no-store" in reply.headers["cache-control"]


def test_a_machine_that_cannot_predict_says_so(
    client: TestClient, classifier_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise WorkerUnavailable("Predicting needs torch.")

    monkeypatch.setattr(predictions, "run_program", refuse)
    reply = client.post(f"/v1/classifiers/{classifier_id}/predictions", files={"file": npz_of(images=IMAGES)})
    assert (reply.status_code, reply.json()["detail"]) == (503, "Predicting needs torch.")


def test_the_archive_holds_what_anybody_may_get(client: TestClient, job_id: str) -> None:
    reply = client.get(f"/v1/jobs/{job_id}/classifier.zip", params={"license": "CC-BY-4.0"})
    assert reply.status_code == 200, reply.text
    assert reply.content == client.get(f"/v1/jobs/{job_id}/classifier.zip", params={"license": "CC-BY-4.0"}).content
    with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
        names = set(archive.namelist())
        assert b"CC-BY-4.0" in archive.read("LICENSE")
        assert b"confusion" not in archive.read("report.json")
    stated = {"README.md", "LICENSE", "SHA256SUMS", "SHA256SUMS.sig.json", "card.json", "privacy.json", "report.json"}
    assert names == stated | {"classifier.safetensors", "classifier.onnx"}


def test_the_table_is_on_the_page_of_the_owner_alone(client: TestClient, job_id: str) -> None:
    for role, sees in ((Role.OWNER, True), (Role.OPERATOR, False)):
        visitor = browser(client, KeyRequest("visitor", role=role))
        page = visitor.get(f"/jobs/{job_id}").text
        assert ("719283645" in page) is sees
        assert ("confusion" in page) is sees
        assert "samples.png" not in page
        assert f"/v1/jobs/{job_id}/classifier.onnx" in page
        releases = visitor.get("/releases").text
        assert f"/v1/jobs/{job_id}/classifier.zip" in releases
        assert "719283645" not in releases


@pytest.mark.parametrize(
    "said",
    [
        {"synthetic_images": 100},
        {"evaluation": {"fidelity": ["inception"]}},
        {"evaluation": {"stronger_classifier": True}},
        {"evaluation": {"synthetic_images": 100}},
    ],
)
def test_what_is_said_of_images_is_refused_for_a_classifier(
    client: TestClient, dataset_id: str, said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/v1/plans", "/v1/jobs"):
        reply = client.post(path, json=training(dataset_id, **said))
        assert reply.status_code == 422, reply.text
        assert "does not apply" in reply.text
    job = client.post("/v1/jobs", json=training(dataset_id)).json()
    copy = client.post(job["links"]["clone"], json={**said, "accept_low_utility": True})
    assert (copy.status_code, copy.json()["code"]) == (422, "invalid-input")
    assert "does not apply" in copy.text
    monkeypatch.setattr(Moments, "result", "generator")
    assert client.post("/v1/plans", json=training(dataset_id, **said)).status_code == 200
