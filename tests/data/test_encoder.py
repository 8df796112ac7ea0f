"""A stranger's ONNX encoder: what is taken, and that it sees one image at a time."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from child_programs import in_this_process
from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.data.intake.sandbox import encode as program
from datalens_service.data.intake.sandbox import encoder, sandbox
from tests.models.onnx_files import FEATURES, onnx_encoder

IMAGES = np.random.default_rng(1).integers(0, 256, (7, 11, 9, 3), dtype=np.uint8)


@pytest.fixture
def without_process() -> Iterator[None]:
    """For what is refused or left out before any process matters."""
    with in_this_process():
        yield


def node(operator: str, *inputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(operator, list(inputs or ["mixed"]), ["last"], **attributes)


def in_another_file(model: ModelProto) -> None:
    """As exports of large models are."""
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")


def two_inputs(model: ModelProto) -> None:
    model.graph.input.append(model.graph.input[0])
    model.graph.input[1].name = "others"


def own_function(model: ModelProto) -> None:
    model.functions.add(name="hidden", domain="")


def test_features_are_those_of_the_graph_on_one_image_to_the_last_bit() -> None:
    graph = onnx_encoder(side=11)
    images = IMAGES[:, :, [*range(9), 8, 8]]
    features = encoder.encode(graph, images)
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    for image, row in zip(images, features, strict=True):
        (vector,) = session.run(None, {"images": image.transpose(2, 0, 1)[None].astype(np.float32) / 255})
        np.testing.assert_allclose(row, vector.ravel() / np.linalg.norm(vector), atol=1e-5)
    together = session.run(None, {"images": images.transpose(0, 3, 1, 2).astype(np.float32) / 255})[0].reshape(7, -1)
    assert np.abs(together / np.linalg.norm(together, axis=1)[:, None] - features).max() > 0.01


def test_images_of_any_size_are_brought_to_that_of_the_graph_and_grey_ones_are_shown_as_rgb() -> None:
    graph = onnx_encoder()
    grey = IMAGES[..., :1]
    features = encoder.encode(graph, grey)
    assert features.shape == (7, FEATURES)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(encoder.encode(graph, np.repeat(grey, 3, axis=3)), features)
    np.testing.assert_array_equal(encoder.encode(graph, grey[4:5]), features[4:5])


@pytest.mark.usefixtures("without_process")
@pytest.mark.parametrize(
    ("graph", "says"),
    [
        (b"no graph", "not an ONNX graph"),
        (onnx_encoder(channels=1), "one input of floats"),
        (onnx_encoder(batch=4), "one input of floats"),
        (onnx_encoder(change=two_inputs), "one input of floats"),
        (onnx_encoder(node("RandomNormalLike")), "operator RandomNormalLike"),
        (onnx_encoder(node("Dropout", "mixed", "weights", "weights")), "operator Dropout"),
        (onnx_encoder(node("Loop", "mixed", "mixed")), "operator Loop"),
        (onnx_encoder(node("Gelu", domain="com.example")), "operator Gelu"),
        (onnx_encoder(opsets=(("", 17), ("com.example", 1))), "operators of ONNX alone"),
        (onnx_encoder(opsets=(("", 9),)), "opset 13"),
        (onnx_encoder(change=own_function), "operators of ONNX alone"),
        (onnx_encoder(change=in_another_file), "another file"),
        (onnx_encoder(node("Tanh", "nobody")), "not an ONNX graph"),
        (onnx_encoder(node("Tile", "mixed", "times")), "not an ONNX graph"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_encoder_is_refused_with_what_to_change(graph: bytes, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        encoder.encode(graph, IMAGES)


@pytest.mark.usefixtures("without_process")
def test_an_image_on_which_it_fails_has_no_features_and_says_nothing() -> None:
    """Whether a private image breaks a graph would be an answer that nobody pays for."""
    nodes = [
        helper.make_node("ReduceMax", ["images"], ["brightest"], keepdims=0),
        helper.make_node("Cast", ["brightest"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["mixed", "index"], ["last"], axis=0),
    ]
    images = IMAGES // 2
    images[3] = 255
    features = encoder.encode(onnx_encoder(*nodes), images)
    assert not features[3].any()
    assert np.delete(features, 3, axis=0).any(axis=1).all()


def shaped_by(*inputs: str) -> list[NodeProto]:
    """A whole number that the brightness of an image decides, and what makes a shape of it."""
    return [
        helper.make_node("ReduceMax", ["images"], ["brightest"], keepdims=0),
        helper.make_node("Cast", ["brightest"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Shape", ["mixed"], ["of_shapes"]),
        helper.make_node(inputs[0], list(inputs[1:]), ["last"]),
    ]


@pytest.mark.usefixtures("without_process")
@pytest.mark.parametrize(
    "inputs",
    [
        ("ConstantOfShape", "whole"), ("Expand", "mixed", "whole"), ("Range", "whole", "whole", "whole"),
        ("Reshape", "mixed", "whole"), ("Slice", "mixed", "of_shapes", "whole"), ("Tile", "mixed", "whole"),
        ("Pad", "mixed", "whole"), ("Resize", "mixed", "", "", "whole"), ("ReduceSum", "mixed", "whole"),
    ],
    ids=lambda inputs: inputs[0],
)  # fmt: skip
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reversed"])
def test_no_shape_depends_on_what_an_image_shows(inputs: tuple[str, ...], reverse: bool) -> None:
    """Neither time, memory nor the number of features tells of an image."""
    nodes = shaped_by(*inputs)
    with pytest.raises(InvalidInput, match=f"{inputs[0]} of the encoder makes shapes"):
        encoder.encode(onnx_encoder(*(reversed(nodes) if reverse else nodes)), IMAGES)


@pytest.mark.usefixtures("without_process")
def test_shapes_may_depend_on_shapes() -> None:
    graph = onnx_encoder(*shaped_by("Reshape", "mixed", "of_shapes"))
    np.testing.assert_array_equal(encoder.encode(graph, IMAGES).shape, (7, FEATURES))


@pytest.mark.usefixtures("without_process")
def test_images_that_all_fail_are_no_error() -> None:
    nodes = [
        helper.make_node("ReduceMin", ["images"], ["darkest"], keepdims=0),
        helper.make_node("Cast", ["darkest"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["mixed", "index"], ["last"], axis=0),
    ]
    white = np.full_like(IMAGES, 255)
    assert not encoder.encode(onnx_encoder(*nodes), white).any()


def test_too_many_features_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_FEATURES", FEATURES - 1)
    request = program.EncodeRequest(folder="/nowhere", memory_bytes=1, cpu_seconds=1, graph_bytes=0, shape=IMAGES.shape)
    with pytest.raises(Exception, match="at most 11"):
        program.encode(request, onnx_encoder(), IMAGES.tobytes())


def test_a_graph_that_wants_all_memory_is_ended_and_harms_nobody() -> None:
    def huge(model: ModelProto) -> None:
        model.graph.initializer.append(helper.make_tensor("shape", TensorProto.INT64, [1], [2**33]))
        model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["shape"], ["huge"]))
        model.graph.node.insert(1, helper.make_node("ReduceSum", ["huge"], ["sum"], keepdims=0))

    graph = onnx_encoder(helper.make_node("Add", ["mixed", "sum"], ["last"]), change=huge)
    with pytest.raises(InvalidInput):
        encoder.encode(graph, IMAGES[:1])


def test_what_a_process_leaves_that_was_taken_over_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    popen = subprocess.Popen
    code = "import numpy; numpy.save('features.npy', numpy.ones(3)); open('outcome.json', 'w').write('{}')"

    def another(command: list[str], **options: Any) -> Any:
        return popen([command[0], "-c", code], **options)

    monkeypatch.setattr(sandbox.subprocess, "Popen", another)
    with pytest.raises(InvalidInput, match="no features"):
        encoder.encode(onnx_encoder(), IMAGES)


def test_onnxruntime_starts_no_thread_that_reports_to_its_makers(tmp_path: Path) -> None:
    code = "import os, onnxruntime; print(len(os.listdir('/proc/self/task')))"
    environment = sandbox._environment(tmp_path) | {"HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "1"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "find_spec", lambda name: None)
    with pytest.raises(WorkerUnavailable, match=r"datalens-service\[onnx\]"):
        encoder.encode(onnx_encoder(), IMAGES)
