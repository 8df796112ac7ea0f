"""Writes a network as an ONNX file that is taken as an encoder: RGB from 0 to 1 in, normalised inside, features out."""

import hashlib
import io
import warnings
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import onnx
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from datalens_service.base.errors import InvalidInput, WorkerUnavailable
from datalens_service.data.intake.sandbox import encoder
from datalens_service.data.intake.sandbox.encode import IMAGES
from datalens_service.data.intake.sandbox.encoder import MOST_BYTES
from datalens_service.data.intake.sandbox.encoder_label import MOST_LICENSE, MOST_TITLE, EncoderLabel
from datalens_service.models.encoders.making.networks import Normalisation, build, recognise
from datalens_service.models.encoders.making.weights import read_weights

_OPSET: Final = 17
_FEATURES: Final = "features"
_PROBES: Final = 2
_TOLERANCE: Final = 1e-3
"""Largest difference between features of length 1 whose sums were made in another order."""


class MadeEncoder(NamedTuple):
    """An encoder as the bytes of its file, and the family of networks that it is of."""

    content: bytes
    family: str
    label: EncoderLabel


class Normalised(nn.Module):
    """A network that takes RGB in [0, 1]."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, normalisation: Normalisation) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("mean", torch.tensor(normalisation.mean)[:, None, None])
        self.register_buffer("deviation", torch.tensor(normalisation.deviation)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network((images - self.mean) / self.deviation)
        return features


def make_encoder(weights: Path, title: str, license: str, side: int) -> MadeEncoder:
    """Make an encoder from a file of weights, whose network is recognised by them.

    Args:
        weights: The file: safetensors, or a `state_dict` as torch saves it.
        title: Name of the encoder on cards.
        license: The licence of the weights, in words.
        side: Pixels of a side that images are brought to.

    Raises:
        InvalidInput: It is no file of weights of a known network, or the encoder would be too large.
        WorkerUnavailable: onnxruntime is not installed, or this version of torch writes another graph than it runs.
    """
    found = read_weights(weights)
    known = recognise(found)
    label = _label(weights, title, license)
    network = Normalised(build(known, found, side), known.normalisation).eval()
    _check_size(network)
    content = export(network, side, label)
    _check_features(network, content, side)
    return MadeEncoder(content, known.name, label)


def _label(weights: Path, title: str, license: str) -> EncoderLabel:
    with weights.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        return EncoderLabel(title=title.strip(), license=license.strip(), weights_sha256=sha256)
    except ValidationError:
        raise InvalidInput(
            f"The name of an encoder has at most {MOST_TITLE} printable characters, and its licence {MOST_LICENSE}."
        ) from None


def export(network: nn.Module, side: int, label: EncoderLabel) -> bytes:
    """Write a network from images (1, 3, side, side) to features (1, d), with its label.

    Raises:
        InvalidInput: The network does not take images of that size.
    """
    written = io.BytesIO()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # The exporter that follows it needs another package, and writes the same operators.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                network,
                (torch.zeros(1, 3, side, side),),
                written,
                dynamo=False,
                opset_version=_OPSET,
                input_names=[IMAGES],
                output_names=[_FEATURES],
            )
    except (RuntimeError, ValueError):
        raise InvalidInput(f"The network does not take images of {side}×{side} pixels: name a larger size.") from None
    model = onnx.load_model_from_string(written.getvalue())
    model.ClearField("metadata_props")
    onnx.helper.set_model_props(model, label.as_metadata())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return bytes(model.SerializeToString())


def _check_features(network: nn.Module, content: bytes, side: int) -> None:
    """Compare features by the file with those by the network, on made-up images."""
    images = np.random.default_rng(0).integers(0, 256, (_PROBES, side, side, 3), dtype=np.uint8)
    batch = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    with torch.no_grad():
        expected = nn.functional.normalize(torch.cat([network(image[None]) for image in batch])).numpy()
    if not np.allclose(encoder.encode(content, images), expected, atol=_TOLERANCE):
        raise WorkerUnavailable("This version of torch writes a graph that gives other features than the network.")


def _check_size(network: nn.Module) -> None:
    size = sum(value.numel() * value.element_size() for value in network.state_dict().values())
    if size > MOST_BYTES:
        raise InvalidInput(
            f"The encoder would take {size / 2**20:,.0f} MiB, and at most {MOST_BYTES / 2**20:.0f} are taken: choose a "
            "smaller network."
        )
