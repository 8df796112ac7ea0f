"""A network as an ONNX graph, written node by node: bytes (n, height, width, channels) in, probabilities out.

It can write the layers of `architectures` and no others. Constants of normalisation are part of the graph.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from datalens_service.data.dataset import Schema
from datalens_service.data.intake.sandbox.encode import IMAGES, VECTORS
from datalens_service.models.classifiers.architectures import Centered, EncodedFeatures
from datalens_service.models.encoders.lite0_network import (
    CENTER,
    SCALE,
    SIDE,
    Enlarged,
    InvertedResidual,
    Lite0Network,
    SameConvolution,
    UnitLength,
)
from datalens_service.models.encoders.network import (
    MIDDLE,
    MeanOfMirrored,
    OnnxNetwork,
    OpponentColours,
    ScatteringNetwork,
)
from datalens_service.models.encoders.wavelets import ScatteringTransform, margins

_OPSET, _IR_VERSION = 17, 8


@dataclass
class Graph:
    """Nodes and constants so far, and the name of the last result."""

    last: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node on `inputs`, or on the last result if there are none, and return the name of its result."""
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs or (self.last,)), [name], **attributes))
        self.last = name
        return name

    def constant(self, value: NDArray[Any]) -> str:
        """Add a constant and return the name by which nodes use it."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, value: float) -> str:
        """Add a constant number and return its name."""
        return self.constant(np.array(value, dtype=np.float32))


def export(network: nn.Sequential, schema: Schema) -> bytes:
    """Export a network from `architectures.build_network`; with an encoder of the owner's it takes one image.

    Raises:
        TypeError: It has a layer that is not known here.
    """
    own = [layer for layer in network.modules() if isinstance(layer, OnnxNetwork)]
    graph = Graph(VECTORS if own else IMAGES)
    if not own:
        graph.add("Cast", to=TensorProto.FLOAT)
        graph.add("Transpose", perm=[0, 3, 1, 2])
        graph.add("Div", graph.last, graph.number(255))
    _layer(graph, network, schema)
    graph.nodes.append(helper.make_node("Softmax", [graph.last], ["probabilities"], axis=1))
    probabilities = helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["n", schema.num_classes])
    if own:
        # Messages that follow each other are one message, so that what a stranger sent is not read here.
        added = onnx.GraphProto(node=graph.nodes, initializer=graph.constants, output=[probabilities])
        return own[0].export() + bytes(onnx.ModelProto(graph=added).SerializeToString())
    shape: list[str | int | None] = ["n", schema.height, schema.width, schema.channels]
    images = helper.make_tensor_value_info(IMAGES, TensorProto.UINT8, shape)
    made = helper.make_graph(graph.nodes, "classifier", [images], [probabilities], graph.constants)
    opset = [helper.make_opsetid("", _OPSET)]
    model = helper.make_model(made, opset_imports=opset, ir_version=_IR_VERSION, producer_name="datalens-service")
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def _layer(graph: Graph, layer: nn.Module, schema: Schema) -> None:
    if type(layer) not in _WRITERS:
        raise TypeError(f"no ONNX node is known for {type(layer).__name__}")
    _WRITERS[type(layer)](graph, layer, schema)


def _sequential(graph: Graph, layers: nn.Sequential, schema: Schema) -> None:
    for layer in layers:
        _layer(graph, layer, schema)


def _centered(graph: Graph, _layer: nn.Module, _schema: Schema) -> None:
    graph.add("Sub", graph.last, graph.number(0.5))
    graph.add("Mul", graph.last, graph.number(2))


def _conv(graph: Graph, layer: nn.Conv2d, _schema: Schema) -> None:
    weights = [graph.constant(part.detach().numpy()) for part in (layer.weight, layer.bias) if part is not None]
    padding = [int(side) for side in layer.padding] * 2
    graph.add("Conv", graph.last, *weights, strides=list(layer.stride), pads=padding)


def _linear(graph: Graph, layer: nn.Linear, _schema: Schema) -> None:
    weights = [graph.constant(part.detach().numpy()) for part in (layer.weight, layer.bias)]
    graph.add("Gemm", graph.last, *weights, transB=1)


def _pool(graph: Graph, layer: nn.MaxPool2d | nn.AvgPool2d, _schema: Schema) -> None:
    operator = "MaxPool" if isinstance(layer, nn.MaxPool2d) else "AveragePool"
    graph.add(operator, kernel_shape=[layer.kernel_size] * 2, strides=[layer.stride] * 2)


def _node(operator: str, **attributes: int) -> Callable[[Graph, nn.Module, Schema], None]:
    """Return a writer for a layer that is always the same single node."""

    def write(graph: Graph, _layer: nn.Module, _schema: Schema) -> None:
        graph.add(operator, **attributes)

    return write


def _encoded_features(graph: Graph, layer: EncodedFeatures, schema: Schema) -> None:
    """Write the encoder, then the basis if there is one."""
    _layer(graph, layer.encoder, schema)
    if layer.has_basis:
        centered = graph.add("Sub", graph.last, graph.constant(layer.center.numpy()))
        graph.add("MatMul", centered, graph.constant(layer.basis.numpy()))
    _unit_length(graph, layer, schema)


_unit_length = _node("LpNormalization", axis=1, p=2)


def _enlarged(graph: Graph, _layer: nn.Module, schema: Schema) -> None:
    """Write the resizing to RGB images of 128×128 pixels in the range of the weights."""
    scales = graph.constant(np.array([1, 1, SIDE / schema.height, SIDE / schema.width], dtype=np.float32))
    graph.add("Resize", graph.last, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    centered = graph.add("Sub", graph.last, graph.number(CENTER))
    scaled = graph.add("Mul", centered, graph.number(SCALE))
    if schema.channels == 1:
        graph.add("Concat", scaled, scaled, scaled, axis=1)


def _same_convolution(graph: Graph, layer: SameConvolution, _schema: Schema) -> None:
    weights = [graph.constant(part.detach().numpy()) for part in (layer.weight, layer.bias) if part is not None]
    strides = {"strides": list(layer.stride), "group": layer.groups}
    graph.add("Conv", graph.last, *weights, auto_pad="SAME_UPPER", **strides)


def _residual(graph: Graph, layer: InvertedResidual, schema: Schema) -> None:
    before = graph.last
    _sequential(graph, layer, schema)
    graph.add("Add", before, graph.last)


def _relu6(graph: Graph, _layer: nn.Module, _schema: Schema) -> None:
    graph.add("Clip", graph.last, graph.number(0), graph.number(6))


def _scattering_network(graph: Graph, layer: ScatteringNetwork, schema: Schema) -> None:
    """Write colours, scattering, mean and deviation of each group of channels, then one vector."""
    _sequential(graph, layer.colours, schema)
    _layer(graph, layer.scattering, schema)
    groups = graph.constant(np.array([0, layer.normalise.num_groups, -1], dtype=np.int64))
    grouped = graph.add("Reshape", graph.last, groups)
    centered = graph.add("Sub", grouped, graph.add("ReduceMean", grouped, axes=[2], keepdims=1))
    variance = graph.add("ReduceMean", graph.add("Mul", centered, centered), axes=[2], keepdims=1)
    deviation = graph.add("Sqrt", graph.add("Add", variance, graph.number(layer.normalise.eps)))
    graph.add("Flatten", graph.add("Div", centered, deviation), axis=1)
    height, width = (-(-side // 4) for side in (schema.height, schema.width))
    graph.add("Div", graph.last, graph.number((layer.normalise.num_channels * height * width) ** 0.5))


def _opponent_colours(graph: Graph, layer: OpponentColours, _schema: Schema) -> None:
    centered = graph.add("Sub", graph.last, graph.number(MIDDLE))
    graph.add("Conv", centered, graph.constant(layer.mixture.numpy()))


def _onnx(graph: Graph, _layer: OnnxNetwork, _schema: Schema) -> None:
    """Write nothing: its nodes come before all others."""


def _lite0(graph: Graph, layer: Lite0Network, schema: Schema) -> None:
    _layer(graph, layer.layers, schema)


def _mean_of_mirrored(graph: Graph, layer: MeanOfMirrored, schema: Schema) -> None:
    image = graph.last
    _layer(graph, layer.layer, schema)
    maps = graph.last
    ends = [graph.constant(np.array([number], dtype=np.int64)) for number in (-1, np.iinfo(np.int64).min, 3, -1)]
    graph.add("Slice", image, *ends)
    _layer(graph, layer.layer, schema)
    graph.add("Mul", graph.add("Add", maps, graph.last), graph.number(0.5))


def _scattering(graph: Graph, layer: ScatteringTransform, schema: Schema) -> None:
    """Write planes of one channel each, like `ScatteringTransform.forward`, at every, every second and fourth pixel."""
    grids = [[-(-side // 2**scale) for side in (schema.height, schema.width)] for scale in range(3)]

    def planes(name: str, channels: int, scale: int) -> str:
        return graph.add("Reshape", name, graph.constant(np.array([-1, channels, *grids[scale]], dtype=np.int64)))

    def convolved(name: str, filters: NDArray[Any], scale: int, stride: int) -> str:
        margin, mode = margins(filters.shape[-1], (grids[scale][0], grids[scale][1]))
        pads = graph.constant(np.array([0, 0, margin, margin] * 2, dtype=np.int64))
        padded = graph.add("Pad", name, pads, mode=mode.replace("replicate", "edge"))
        return graph.add("Conv", padded, graph.constant(filters), strides=[stride] * 2)

    def modulus(name: str, scale: int) -> str:
        filters = layer.get_buffer(f"wavelets{scale}").numpy()
        half = graph.constant(np.array([len(filters) // 2] * 2, dtype=np.int64))
        parts = convolved(name, filters, 0, 2**scale)
        graph.nodes.append(helper.make_node("Split", [parts, half], [f"{parts}_real", f"{parts}_imaginary"], axis=1))
        squares = [graph.add("Mul", part, part) for part in (f"{parts}_real", f"{parts}_imaginary")]
        return graph.add("Sqrt", graph.add("Add", *squares))

    def smoothed(name: str, channels: int, scale: int) -> str:
        low_pass = layer.get_buffer(f"average{scale}").numpy()
        return planes(convolved(planes(name, 1, scale), low_pass, scale, 4 // 2**scale), channels, 2)

    image = planes(graph.last, 1, 0)
    first, coarse = modulus(image, 0), modulus(image, 1)
    pairs = planes(modulus(planes(first, 1, 0), 1), 64, 1)
    fine = smoothed(graph.add("Concat", image, first, axis=1), 9, 0)
    broad = smoothed(graph.add("Concat", coarse, pairs, axis=1), 72, 1)
    planes(graph.add("Concat", fine, broad, axis=1), 81 * schema.channels, 2)


_WRITERS: dict[type[nn.Module], Callable[[Graph, Any, Schema], None]] = {
    nn.Sequential: _sequential,
    Centered: _centered,
    nn.Conv2d: _conv,
    nn.Linear: _linear,
    nn.MaxPool2d: _pool,
    nn.AvgPool2d: _pool,
    nn.ReLU: _node("Relu"),
    nn.Sigmoid: _node("Sigmoid"),
    nn.Flatten: _node("Flatten", axis=1),
    EncodedFeatures: _encoded_features,
    UnitLength: _unit_length,
    Enlarged: _enlarged,
    SameConvolution: _same_convolution,
    InvertedResidual: _residual,
    nn.ReLU6: _relu6,
    nn.AdaptiveAvgPool2d: _node("GlobalAveragePool"),
    OpponentColours: _opponent_colours,
    ScatteringTransform: _scattering,
    MeanOfMirrored: _mean_of_mirrored,
    ScatteringNetwork: _scattering_network,
    Lite0Network: _lite0,
    OnnxNetwork: _onnx,
}
