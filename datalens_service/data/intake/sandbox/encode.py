"""The process that runs a stranger's ONNX encoder: `python -m datalens_service.data.intake.sandbox.encode`.

It gets the graph and images behind its request, and leaves `features.npy`. The graph sees one image at a time, so the
features of an image are a function of that image alone, whatever its layers do with a batch; an image on which it fails
has features of 0. Without images it leaves `encoder.onnx`, which is the graph from bytes of one image to features of
length 1, and `label.json`, what the file says of itself.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.errors import InvalidDataset
from datalens_service.data.intake.sandbox.encoder_label import EncoderLabel
from datalens_service.data.intake.sandbox.exchange import ReadingOutcome, ReadingRequest, serve

IMAGES: Final = "images"
VECTORS: Final = "vectors"
"""Prefix of names for the graph's input, and name of its last result."""

FEATURES_FILE: Final = "features.npy"
GRAPH_FILE: Final = "encoder.onnx"
LABEL_FILE: Final = "label.json"
MOST_FEATURES: Final = 8192
_OWN: Final = "encoder/"
_OLDEST_OPSET: Final = 13
_LARGEST_SIDE: Final = 512
_COLOURS: Final = 3

# None draws, remembers or repeats.
_OPERATORS: Final = """
    Abs Add And AveragePool BatchNormalization Cast Ceil Clip Concat Constant ConstantOfShape Conv Cos CumSum
    DepthToSpace DequantizeLinear Div Dropout Einsum Elu Equal Erf Exp Expand Flatten Floor Gather GatherElements
    GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization HardSigmoid HardSwish
    Identity InstanceNormalization LRN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization
    MatMul Max MaxPool Mean Min Mish Mod Mul Neg Not Or PRelu Pad Pow QuantizeLinear Range Reciprocal ReduceL1
    ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum ReduceSumSquare Relu Reshape Resize Round ScatterElements
    ScatterND Selu Shape Sigmoid Sign Sin Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum
    Tanh Tile Transpose Trilu Unsqueeze Where
"""
_OF_SHAPES: Final = frozenset({"Shape", "Size"})
"""Operators whose results depend on shapes alone."""

_SHAPING: Final = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "Unsqueeze": (1,),
    **{name: (1,) for name in _OPERATORS.split() if name.startswith("Reduce")},
}
"""Inputs of an operator that decide the shape of its result."""

_PROBES: Final = (3, 16, 16)
_INPUT: Final = (
    "The encoder must have one input of floats (images, 3, height, width): RGB from 0 to 1, of a fixed size."
)


class EncodeRequest(ReadingRequest):
    """A request that is followed by so many bytes of the graph, then images (n, height, width, channels)."""

    graph_bytes: int
    shape: tuple[int, int, int, int]


def main() -> None:
    # Loads libraries that a confined process could not.
    import onnxruntime  # noqa: F401
    from onnx import helper  # noqa: F401

    request = EncodeRequest.model_validate_json(sys.stdin.buffer.readline())
    graph = sys.stdin.buffer.read(request.graph_bytes)
    serve(request, partial(encode, request, graph, sys.stdin.buffer.read()))


def encode(request: EncodeRequest, graph: bytes, pixels: bytes) -> ReadingOutcome:
    """Encode the images, or write the graph that does.

    Raises:
        InvalidDataset: The graph is not an encoder that is taken.
        OSError: The disk did not take the result.
    """
    images = np.frombuffer(pixels, dtype=np.uint8).reshape(request.shape)
    wrapped = _without_details(lambda: wrap(graph, images.shape[3]))
    if not len(images):
        (request.folder / GRAPH_FILE).write_bytes(wrapped)
        (request.folder / LABEL_FILE).write_text(_without_details(lambda: _label(graph)).model_dump_json())
        return ReadingOutcome()
    session = _without_details(lambda: _session(wrapped))
    np.save(request.folder / FEATURES_FILE, _rows(session, images))
    return ReadingOutcome()


def wrap(content: bytes, channels: int) -> bytes:
    """Wrap the graph to take bytes (1, height, width, channels) and give `VECTORS`, without a declared output.

    Raises:
        InvalidDataset: It has another input, or an operator that is not taken.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load_model_from_string(content)
    name, height, width = _input(model)
    _check_operators(model)
    _check_shapes(model, name)
    _rename(model)

    def constant(tag: str, values: list[Any], kind: Any) -> str:
        model.graph.initializer.append(numpy_helper.from_array(np.array(values, dtype=kind), tag))
        return tag

    size = constant("size", [1, channels, height, width], np.int64)
    colours = constant("colours", [1, _COLOURS, 1, 1], np.int64)
    scale, row = constant("scale", [255], np.float32), constant("row", [1, -1], np.int64)
    steps: list[tuple[str, list[str], dict[str, Any]]] = [
        ("Cast", [IMAGES], {"to": TensorProto.FLOAT}),
        ("Transpose", [], {"perm": [0, 3, 1, 2]}),
        ("Div", [scale], {}),
        ("Resize", ["", "", size], {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}),
        ("Expand", [colours], {}),
    ]
    before = _chain(steps, "", "before", _OWN + name)
    steps = [("Cast", [], {"to": TensorProto.FLOAT}), ("Reshape", [row], {}), ("LpNormalization", [], {"axis": 1})]
    after = _chain(steps, _OWN + model.graph.output[0].name, "after", VECTORS)
    nodes = [*before, *model.graph.node, *after]
    taken = helper.make_tensor_value_info(IMAGES, TensorProto.UINT8, [1, "height", "width", channels])
    for field, values in (("node", nodes), ("input", [taken]), ("output", []), ("value_info", [])):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(values)
    return bytes(model.SerializeToString())


def _label(content: bytes) -> EncoderLabel:
    import onnx

    model = onnx.load_model_from_string(content)
    return EncoderLabel.from_metadata({entry.key: entry.value for entry in model.metadata_props})


def _chain(steps: list[tuple[str, list[str], dict[str, Any]]], first: str, tag: str, last: str) -> list[Any]:
    """Make nodes, each of which takes the result of the one before as its first input."""
    from onnx import helper

    nodes, current = [], first
    for number, (operator, inputs, attributes) in enumerate(steps):
        made = last if number == len(steps) - 1 else f"{tag}_{number}"
        nodes.append(helper.make_node(operator, [current, *inputs] if current else inputs, [made], **attributes))
        current = made
    return nodes


def _rename(model: Any) -> None:
    """Begin all names with a word, so that others are free."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [_OWN + name if name else "" for name in names]
    for tensor in model.graph.initializer:
        tensor.name = _OWN + tensor.name


def _input(model: Any) -> tuple[str, int, int]:
    """Return name, height and width of the one input."""
    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [each for each in model.graph.input if each.name not in constants]
    if len(inputs) != 1 or not model.graph.output:
        raise InvalidDataset(_INPUT)
    tensor = inputs[0].type.tensor_type
    sides = [dimension.dim_value for dimension in tensor.shape.dim]
    fits = tensor.elem_type == 1 and len(sides) == 4 and sides[0] in (0, 1) and sides[1] == _COLOURS
    if not fits or not all(1 <= side <= _LARGEST_SIDE for side in sides[2:]):
        raise InvalidDataset(_INPUT)
    return inputs[0].name, sides[2], sides[3]


def _check_operators(model: Any) -> None:
    """Refuse files beside the file, foreign operators, and those that draw, remember or repeat."""
    opsets = {opset.domain or "ai.onnx": opset.version for opset in model.opset_import}
    if set(opsets) != {"ai.onnx"} or opsets["ai.onnx"] < _OLDEST_OPSET or model.functions:
        raise InvalidDataset(f"The encoder must use the operators of ONNX alone, of opset {_OLDEST_OPSET} or later.")
    known = _OPERATORS.split()
    for node in model.graph.node:
        is_known = node.op_type in known and node.domain in ("", "ai.onnx")
        if not is_known or (node.op_type == "Dropout" and any(node.input[2:])):
            name = "".join(filter(str.isalnum, node.op_type))[:40]
            raise InvalidDataset(f"The encoder has the operator {name}, which is not taken: export it for inference.")
    if any(tensor.external_data or tensor.data_location for tensor in _tensors(model)):
        raise InvalidDataset("The encoder keeps weights in another file: export it as one file.")


def _check_shapes(model: Any, image: str) -> None:
    """Refuse results whose shape, and so the time and memory that they take, depends on the content of an image.

    Else it could be observed from outside.
    """
    seen: set[str] = set()
    found = {image}
    while found:
        seen |= found
        readers = (node for node in model.graph.node if node.op_type not in _OF_SHAPES)
        found = {name for node in readers if seen.intersection(node.input) for name in node.output} - seen
    for node in model.graph.node:
        shaping = {node.input[place] for place in _SHAPING.get(node.op_type, ()) if place < len(node.input)}
        if shaping & seen:
            raise InvalidDataset(
                f"The operator {node.op_type} of the encoder makes shapes of what an image shows: export fixed shapes."
            )


def _tensors(model: Any) -> Iterable[Any]:
    """Yield every constant of the graph."""
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)


def _session(wrapped: bytes) -> Any:
    import onnx
    import onnxruntime

    # Messages that follow each other are one message: this one adds the output.
    output = onnx.helper.make_tensor_value_info(VECTORS, onnx.TensorProto.FLOAT, None)
    declared = onnx.ModelProto(graph=onnx.GraphProto(output=[output])).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.use_deterministic_compute = True
    return onnxruntime.InferenceSession(wrapped + declared, options, providers=["CPUExecutionProvider"])


def _rows(session: Any, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Compute features (n, features), each row of its own image, with as many features as made-up images have."""
    probes = np.random.default_rng(0).integers(0, 256, (*_PROBES, images.shape[3]), dtype=np.uint8)
    widths = {len(row) for probe in probes if (row := _row(session, probe)) is not None}
    if len(widths) != 1 or not 0 < max(widths) <= MOST_FEATURES:
        raise InvalidDataset(f"The encoder must give every image equally many features, at most {MOST_FEATURES:,}.")
    found = np.zeros((len(images), widths.pop()), dtype=np.float32)
    for features, image in zip(found, images, strict=True):
        row = _row(session, image)
        features[:] = row if row is not None and row.shape == features.shape else 0
    return found


def _row(session: Any, image: NDArray[np.uint8]) -> NDArray[np.float32] | None:
    # The message of a failure may depend on the image.
    with suppress(Exception):
        vector: NDArray[np.float32] = session.run([VECTORS], {IMAGES: image[None]})[0][0]
        return np.nan_to_num(vector, posinf=0, neginf=0)
    return None


def _without_details(work: Any) -> Any:
    try:
        return work()
    except (InvalidDataset, MemoryError):
        raise
    except Exception as error:
        raise InvalidDataset("The file is not an ONNX graph that onnxruntime can run.") from error


if __name__ == "__main__":
    main()
