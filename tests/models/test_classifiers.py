"""Released classifiers: files, ONNX, predictions."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.numpy import save_file

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidInput
from datalens_service.models.classifiers.architectures import ARCHITECTURES, build_network
from datalens_service.models.classifiers.classifier import Classifier

SIZES = [(1, 28, 28), (3, 32, 32), (1, 20, 24), (3, 33, 17), (1, 16, 64)]

PROBES = {
    "scattering": {"dimensions": 40},
    "linear_probe": {"encoder": {"name": "imagenet-lite0"}, "dimensions": None},
}
each_architecture = pytest.mark.parametrize("architecture", [*ARCHITECTURES, *PROBES])


def schema_of(channels: int = 1, height: int = 28, width: int = 28) -> Schema:
    return Schema(channels=channels, height=height, width=width, class_names=("a", "b", "c"), num_units=100)


def unpack_classifier(architecture: str, schema: Schema, seed: int = 3) -> Classifier:
    settings = {"architecture": architecture} | PROBES.get(architecture, {})
    network = build_network(settings, schema, seed)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: value + 0.2 * torch.randn(value.shape, generator=generator)
        for name, value in network.state_dict().items()
    }
    return Classifier(schema, settings, {name: value.numpy() for name, value in weights.items()})


def decode_entries(schema: Schema, count: int = 256) -> np.ndarray:
    shape = (count, schema.height, schema.width, schema.channels)
    images = np.random.default_rng(4).integers(0, 256, shape).astype(np.uint8)
    images[0], images[1] = 0, 255
    return images


@each_architecture
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_onnx_says_what_the_classifier_says(architecture: str, size: tuple[int, int, int], tmp_path: Path) -> None:
    schema = schema_of(*size)
    classifier = unpack_classifier(architecture, schema)
    classifier.save_onnx(tmp_path / "classifier.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "classifier.onnx", providers=["CPUExecutionProvider"])
    images = decode_entries(schema, 24 if architecture == "linear_probe" else 256)
    (probabilities,) = session.run(["probabilities"], {"images": images})
    np.testing.assert_allclose(probabilities, classifier.predict(images), atol=1e-4)
    assert len(np.unique(probabilities.round(3))) > 10


@each_architecture
def test_a_file_gives_the_same_classifier(architecture: str, tmp_path: Path) -> None:
    classifier = unpack_classifier(architecture, schema_of())
    classifier.save(tmp_path / "classifier.safetensors")
    loaded = Classifier.load(tmp_path / "classifier.safetensors")
    assert (loaded.schema, loaded.settings) == (classifier.schema, classifier.settings)
    for name, value in classifier.tensors.items():
        assert loaded.tensors[name].tobytes() == value.tobytes()


@each_architecture
def test_a_prediction_depends_on_its_own_image_alone(architecture: str) -> None:
    classifier = unpack_classifier(architecture, schema_of())
    images = decode_entries(classifier.schema, 8)
    changed = images.copy()
    changed[3] = 255 - changed[3]
    before, after = classifier.predict(images), classifier.predict(changed)
    others = np.arange(8) != 3
    np.testing.assert_array_equal(before[others], after[others])
    assert (before[3] != after[3]).any()


def test_probabilities_add_up_to_one_and_none_come_from_no_image() -> None:
    classifier = unpack_classifier("linear", schema_of())
    np.testing.assert_allclose(classifier.predict(decode_entries(classifier.schema)).sum(axis=1), 1, rtol=1e-6)
    assert classifier.predict(decode_entries(classifier.schema, 2)[:0]).shape == (0, 3)


@pytest.mark.parametrize("shape", [(2, 28, 28), (2, 28, 28, 3), (2, 27, 28, 1)])
def test_other_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="28×28"):
        unpack_classifier("linear", schema_of()).predict(np.zeros(shape, dtype=np.uint8))


def test_files_that_are_no_classifier_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    classifier = unpack_classifier("linear", schema_of())
    save_file(classifier.tensors, path, {"kind": "gaussian"})
    with pytest.raises(InvalidInput, match="not a classifier"):
        Classifier.load(path)
    Classifier(classifier.schema, {"architecture": "mlp"}, classifier.tensors).save(path)
    with pytest.raises(InvalidInput, match="do not fit"):
        Classifier.load(path).predict(decode_entries(classifier.schema))
    Classifier(classifier.schema, {"architecture": "os.system"}, classifier.tensors).save(path)
    with pytest.raises(InvalidInput, match="no architecture"):
        Classifier.load(path).predict(decode_entries(classifier.schema))


def test_the_small_cnn_has_the_size_of_the_papers() -> None:
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    sizes = {
        name: sum(w.numel() for w in build_network({"architecture": name}, schema).parameters())
        for name in ARCHITECTURES
    }
    assert (sizes["small_cnn"], sizes["lenet"]) == (26_010, 61_706)
