"""Released classifiers: files, ONNX, predictions."""

import hashlib
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.numpy import save_file

from child_programs import without_processes  # noqa: F401 (a fixture)
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Schema
from datalens_service.models.classifiers.architectures import ARCHITECTURES, build_network
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.classifiers.encoded_features import FeatureBasis, as_classifier

from .onnx_files import stored_encoder

SIZES = [(1, 28, 28), (3, 32, 32), (1, 20, 24), (3, 33, 17), (1, 16, 64)]

PROBES = {
    "scattering": {"dimensions": 40},
    "linear_probe": {"encoder": {"name": "imagenet-lite0"}, "dimensions": None},
}
OWN, FILE = stored_encoder()
each_architecture = pytest.mark.parametrize("architecture", [*ARCHITECTURES, *PROBES])


def schema_of(channels: int = 1, height: int = 28, width: int = 28) -> Schema:
    return Schema(channels=channels, height=height, width=width, class_names=("a", "b", "c"), num_units=100)


def classifier_of(architecture: str, schema: Schema, seed: int = 3) -> Classifier:
    settings = {"architecture": architecture} | PROBES.get(architecture, {})
    network = build_network(settings, schema, seed)
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: value + 0.2 * torch.randn(value.shape, generator=generator)
        for name, value in network.state_dict().items()
    }
    return Classifier(schema, settings, {name: value.numpy() for name, value in weights.items()})


def images_of(schema: Schema, count: int = 256) -> np.ndarray:
    shape = (count, schema.height, schema.width, schema.channels)
    images = np.random.default_rng(4).integers(0, 256, shape).astype(np.uint8)
    images[0], images[1] = 0, 255
    return images


@each_architecture
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_onnx_says_what_the_classifier_says(architecture: str, size: tuple[int, int, int], tmp_path: Path) -> None:
    schema = schema_of(*size)
    classifier = classifier_of(architecture, schema)
    classifier.save_onnx(tmp_path / "classifier.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "classifier.onnx", providers=["CPUExecutionProvider"])
    images = images_of(schema, 24 if architecture in PROBES else 256)
    (probabilities,) = session.run(["probabilities"], {"images": images})
    np.testing.assert_allclose(probabilities, classifier.predict(images), atol=1e-4)
    assert len(np.unique(probabilities.round(3))) > 10


@each_architecture
def test_a_file_gives_the_same_classifier(architecture: str, tmp_path: Path) -> None:
    classifier = classifier_of(architecture, schema_of())
    classifier.save(tmp_path / "classifier.safetensors")
    loaded = Classifier.load(tmp_path / "classifier.safetensors")
    assert (loaded.schema, loaded.settings) == (classifier.schema, classifier.settings)
    for name, value in classifier.tensors.items():
        assert loaded.tensors[name].tobytes() == value.tobytes()


@pytest.mark.parametrize("dimensions", [None, 5])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_classifier_holds_an_encoder_of_its_owner(channels: int, dimensions: int | None, tmp_path: Path) -> None:
    schema = schema_of(channels, 20, 24)
    images = images_of(schema, 40)
    basis = FeatureBasis.from_encoder(OWN, schema, "cpu", dimensions, FILE)
    if dimensions is not None:
        basis.fit(images, 0.25, 0)
    width = basis.features(images).shape[1]
    weights = np.random.default_rng(0).normal(size=(width, schema.num_classes)).astype(np.float32) * 9
    classifier = as_classifier(basis, weights)
    classifier.save(tmp_path / "classifier.safetensors")
    classifier.save_onnx(tmp_path / "classifier.onnx")
    expected = classifier.predict(images)
    assert len(np.unique(expected.round(3))) > 10
    np.testing.assert_array_equal(Classifier.load(tmp_path / "classifier.safetensors").predict(images), expected)
    session = onnxruntime.InferenceSession(tmp_path / "classifier.onnx", providers=["CPUExecutionProvider"])
    found = [session.run(None, {"images": image[None]})[0][0] for image in images]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    octets = classifier.tensors["0.encoder._extra_state"].tobytes()
    assert hashlib.sha256(octets).hexdigest() == OWN.sha256


@each_architecture
def test_a_prediction_depends_on_its_own_image_alone(architecture: str) -> None:
    classifier = classifier_of(architecture, schema_of())
    images = images_of(classifier.schema, 8)
    changed = images.copy()
    changed[3] = 255 - changed[3]
    before, after = classifier.predict(images), classifier.predict(changed)
    others = np.arange(8) != 3
    np.testing.assert_array_equal(before[others], after[others])
    assert (before[3] != after[3]).any()


def test_probabilities_add_up_to_one_and_none_come_from_no_image() -> None:
    classifier = classifier_of("linear", schema_of())
    np.testing.assert_allclose(classifier.predict(images_of(classifier.schema)).sum(axis=1), 1, rtol=1e-6)
    assert classifier.predict(images_of(classifier.schema, 2)[:0]).shape == (0, 3)


@pytest.mark.parametrize("shape", [(2, 28, 28), (2, 28, 28, 3), (2, 27, 28, 1)])
def test_other_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="28×28"):
        classifier_of("linear", schema_of()).predict(np.zeros(shape, dtype=np.uint8))


def test_files_that_are_no_classifier_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    classifier = classifier_of("linear", schema_of())
    save_file(classifier.tensors, path, {"kind": "gaussian"})
    with pytest.raises(InvalidInput, match="not a classifier"):
        Classifier.load(path)
    Classifier(classifier.schema, {"architecture": "mlp"}, classifier.tensors).save(path)
    with pytest.raises(InvalidInput, match="do not fit"):
        Classifier.load(path).predict(images_of(classifier.schema))
    Classifier(classifier.schema, {"architecture": "os.system"}, classifier.tensors).save(path)
    with pytest.raises(InvalidInput, match="no architecture"):
        Classifier.load(path).predict(images_of(classifier.schema))


def test_the_small_cnn_has_the_size_of_the_papers() -> None:
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    sizes = {
        name: sum(w.numel() for w in build_network({"architecture": name}, schema).parameters())
        for name in ARCHITECTURES
    }
    assert (sizes["small_cnn"], sizes["lenet"]) == (26_010, 61_706)
