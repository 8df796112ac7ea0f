"""Public encoders: features are functions of their own image, and of weights whose hash is known."""

import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper
from PIL import Image

from datalens_service.base.errors import InvalidInput, InvalidSpec, WorkerUnavailable
from datalens_service.data.dataset import Schema
from datalens_service.models.encoders import AnyEncoder, Encoder, ImagenetLite0, OnnxEncoder, imagenet_lite0

from .builders import schema_of
from .onnx_files import onnx_encoder, stored_encoder

with_weights = pytest.mark.skipif(
    imagenet_lite0.find_spec(imagenet_lite0._PACKAGE) is None, reason="the extra imagenet is not installed"
)
OWN, FILE = stored_encoder()
ENCODERS = [
    pytest.param(OWN if kind is OnnxEncoder else kind(), marks=with_weights if kind is ImagenetLite0 else (), id=name)
    for name, kind in ((kind.__name__, kind) for kind in typing.get_args(AnyEncoder))
]
each_encoder = pytest.mark.parametrize("encoder", ENCODERS)
each_size = pytest.mark.parametrize("size", [(1, 28, 28), (3, 12, 9)], ids=str)


def images_of(schema: Schema, count: int) -> np.ndarray:
    shape = (count, schema.height, schema.width, schema.channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@each_encoder
@each_size
def test_features_do_not_depend_on_other_images_or_on_the_place_in_a_batch(
    encoder: Encoder, size: tuple[int, int, int]
) -> None:
    """To the last bit: a record that is left out moves the others."""
    schema = schema_of(*size)
    network = encoder.load(schema, FILE)
    images = images_of(schema, 19)
    features = network.encode(images)
    assert features.shape == (19, encoder.dimensions(schema))
    np.testing.assert_array_equal(network.encode(images[1:]), features[1:])
    np.testing.assert_array_equal(network.encode(images[7:8]), features[7:8])
    assert (np.diff(features, axis=0) != 0).any(axis=1).all()


@pytest.mark.parametrize("encoder", [one for one in ENCODERS if one.values[0] is not OWN])
def test_a_network_sees_as_many_images_at_once_however_many_there_are(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether another number moves a bit differs from processor to processor."""
    schema = schema_of(1, 12, 9)
    network = encoder.load(schema, FILE)
    sizes, forward = [], network.forward
    monkeypatch.setattr(network, "forward", lambda images: (sizes.append(len(images)), forward(images))[1])
    for count in (1, network.images_at_once, network.images_at_once + 3):
        assert len(network.encode(images_of(schema, count))) == count
    assert sizes == [network.images_at_once] * 4


@each_encoder
def test_features_are_at_most_one_long(encoder: Encoder) -> None:
    schema = schema_of(3, 12, 9)
    lengths = np.linalg.norm(encoder.load(schema, FILE).encode(images_of(schema, 9)), axis=1)
    assert ((lengths > 0.5) & (lengths < 1.0001)).all()


@with_weights
def test_the_last_layer_of_the_weights_knows_a_tower_by_these_features() -> None:
    """Classes of ImageNet: bell cote, monastery, palace, stupa."""
    photograph = pytest.importorskip("sklearn.datasets").load_sample_image("china.jpg")
    small = np.asarray(Image.fromarray(photograph).resize((128, 128)))
    network = ImagenetLite0().load(schema_of(3, 128, 128))
    weights = torch.load(imagenet_lite0.weights_file(), weights_only=True)
    scores = torch.from_numpy(network.encode(small[None])) @ weights["_fc.weight"].T
    assert int(scores.argmax()) in (442, 663, 698, 832)


def test_a_missing_extra_is_named_where_a_request_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet_lite0, "find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match=r"datalens-service\[imagenet\]"):
        ImagenetLite0().check(schema_of(3, 32, 32))
    with pytest.raises(WorkerUnavailable, match=r"datalens-service\[imagenet\]"):
        ImagenetLite0().load(schema_of(3, 32, 32))


@with_weights
def test_other_weights_than_those_of_the_spec_are_refused() -> None:
    other = ImagenetLite0.model_construct(sha256="0" * 64)
    with pytest.raises(WorkerUnavailable, match="not those"):
        other.load(schema_of(3, 32, 32))


def test_images_that_are_neither_grey_nor_rgb_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="4 channels"):
        ImagenetLite0().check(schema_of(4, 32, 32))


def test_another_file_than_that_of_the_spec_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.onnx").write_bytes(onnx_encoder(side=9))
    for file in (tmp_path / "other.onnx", None):
        with pytest.raises(WorkerUnavailable, match="not the one"):
            OWN.load(schema_of(3, 12, 9), file)
    with pytest.raises(InvalidInput, match="12 features, not 5"):
        OWN.model_copy(update={"features": 5}).load(schema_of(3, 12, 9), FILE).encode(images_of(schema_of(3, 12, 9), 1))


def test_a_file_that_says_nothing_of_images_is_no_encoder() -> None:
    with pytest.raises(InvalidInput, match="none at all"):
        OnnxEncoder.read(onnx_encoder(helper.make_node("Sub", ["mixed", "mixed"], ["last"])))
