"""ONNX encoders as owners export them, small."""

import atexit
import hashlib
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from datalens_service.models.encoders import OnnxEncoder

FEATURES = 12


def onnx_encoder(
    *added: NodeProto,
    side: int = 8,
    batch: str | int = "n",
    channels: int = 3,
    opsets: tuple[tuple[str, int], ...] = (("", 17),),
    change: Any = None,
) -> bytes:
    """A convolution, its mean over the batch beside it, and what is added; `change` gets the model last.

    Args:
        added: Nodes that take `mixed` to `last`; without any, these are one.
    """
    weights = np.random.default_rng(0).normal(size=(FEATURES, channels, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["images", "weights"], ["maps"]),
        helper.make_node("GlobalAveragePool", ["maps"], ["pooled"]),
        helper.make_node("ReduceMean", ["pooled"], ["mean"], axes=[0]),
        helper.make_node("Add", ["pooled", "mean"], ["mixed"]),
        *(added or [helper.make_node("Tanh", ["mixed"], ["last"])]),
    ]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, channels, side, side])],
        [helper.make_tensor_value_info("last", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(*one) for one in opsets], ir_version=8)
    if change is not None:
        change(model)
    return bytes(model.SerializeToString())


@cache
def stored_encoder(side: int = 8) -> tuple[OnnxEncoder, Path]:
    """Such a file, whose layers look across the images of a batch, and what names it."""
    content = onnx_encoder(side=side)
    with tempfile.NamedTemporaryFile(suffix=".onnx", delete=False) as file:
        file.write(content)
    path = Path(file.name)
    atexit.register(path.unlink, missing_ok=True)
    # As `OnnxEncoder.read` finds it in a process.
    return OnnxEncoder(sha256=hashlib.sha256(content).hexdigest(), features=FEATURES), path
