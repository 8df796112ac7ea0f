"""Networks of released classifiers. None has a layer that looks across the records of a batch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Schema
from datalens_service.models.encoders import Encoder, ScatteringEncoder, read_encoder
from datalens_service.models.encoders.network import EncoderNetwork

_CENTER, _SCALE = 0.5, 2.0
"""Public constants: numbers in [0, 1] become numbers in [−1, 1]."""


class Centered(nn.Module):
    """Maps numbers in [0, 1] to numbers in [−1, 1]."""

    def forward(self, images: Tensor) -> Tensor:
        return (images - _CENTER) * _SCALE


class EncodedFeatures(nn.Module):
    """Features of a public encoder, in the coordinates of a released basis, of length 1.

    Every step looks at one image alone. Encoder and basis are parts of the released weights.

    Args:
        encoder: Its features are about 1 long.
        features: Number of its features.
        dimensions: Dimensions of the basis; None leaves the features as they are.
    """

    center: Tensor
    basis: Tensor

    def __init__(self, encoder: EncoderNetwork, features: int, dimensions: int | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.images_at_once = encoder.images_at_once
        self.has_basis = dimensions is not None
        self.width = features if dimensions is None else dimensions
        if dimensions is not None:
            self.register_buffer("center", torch.zeros(features))
            self.register_buffer("basis", torch.eye(features, dimensions))

    def forward(self, images: Tensor) -> Tensor:
        """Return vectors of length 1, (n, width)."""
        features = self.encoder(images)
        return functional.normalize((features - self.center) @ self.basis if self.has_basis else features, dim=1)


def _small_cnn(schema: Schema) -> nn.Sequential:
    """Build the example network of Opacus for MNIST, in the sizes that DataLens (appendix A.2) uses."""
    convolutions = nn.Sequential(
        Centered(),
        *(nn.Conv2d(schema.channels, 16, 8, stride=2, padding=3), nn.ReLU(), nn.MaxPool2d(2, stride=1)),
        *(nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1)),
        nn.Flatten(),
    )
    return nn.Sequential(convolutions, nn.Linear(_width(convolutions, schema), 32), nn.ReLU(), _output(32, schema))


def _lenet(schema: Schema) -> nn.Sequential:
    """Build LeNet with sigmoids, whose second derivative exists everywhere."""
    return _build_lenet(nn.Sigmoid, schema)


def _lenet_relu(schema: Schema) -> nn.Sequential:
    """Build LeNet with rectifiers, which learn in fewer steps."""
    return _build_lenet(nn.ReLU, schema)


def _build_lenet(activation: Callable[[], nn.Module], schema: Schema) -> nn.Sequential:
    """Build the network of LeCun et al. 1998."""
    convolutions = nn.Sequential(
        Centered(),
        *(nn.Conv2d(schema.channels, 6, 5, padding=2), activation(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), activation(), nn.AvgPool2d(2)),
        nn.Flatten(),
    )
    layers = (nn.Linear(_width(convolutions, schema), 120), activation(), nn.Linear(120, 84), activation())
    return nn.Sequential(convolutions, *layers, _output(84, schema))


def _mlp(schema: Schema) -> nn.Sequential:
    hidden = nn.Linear(schema.dimensions, 128)
    return nn.Sequential(Centered(), nn.Flatten(), hidden, nn.ReLU(), _output(128, schema))


def _linear(schema: Schema) -> nn.Sequential:
    return nn.Sequential(Centered(), nn.Flatten(), _output(schema.dimensions, schema))


def linear_probe(features: EncodedFeatures, schema: Schema) -> nn.Sequential:
    """Put a linear layer on fixed features (Tramèr and Boneh 2021)."""
    return nn.Sequential(features, nn.Linear(features.width, schema.num_classes))


ARCHITECTURES: dict[str, Callable[[Schema], nn.Sequential]] = {
    "small_cnn": _small_cnn,
    "lenet": _lenet,
    "lenet_relu": _lenet_relu,
    "mlp": _mlp,
    "linear": _linear,
}


def build_network(settings: dict[str, Any], schema: Schema, seed: int = 0) -> nn.Sequential:
    """Build the network that `settings` describe, with initial weights from `seed`.

    It takes float32 (n, channels, height, width) in [0, 1] and returns (n, classes) logits.

    Raises:
        InvalidInput: The settings name no architecture of this product, or the images are too small for it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        match settings:
            case {"architecture": "scattering", "dimensions": int(dimensions)}:
                return _on_encoder(ScatteringEncoder(), schema, dimensions)
            case {"architecture": "linear_probe", "encoder": dict(encoder), "dimensions": None | int() as dimensions}:
                return _on_encoder(read_encoder(encoder), schema, dimensions)
            case {"architecture": str(architecture)} if architecture in ARCHITECTURES:
                return _of_this_size(architecture, schema).eval()
    raise InvalidInput("The classifier's settings name no architecture of this product.")


def _on_encoder(encoder: Encoder, schema: Schema, dimensions: int | None) -> nn.Sequential:
    most = encoder.dimensions(schema)
    if dimensions is not None and not 0 < dimensions <= most:
        raise InvalidInput(f"The encoder {encoder.name} has no {dimensions} dimensions for these images.")
    return linear_probe(EncodedFeatures(encoder.architecture(schema), most, dimensions), schema).eval()


def _of_this_size(architecture: str, schema: Schema) -> nn.Sequential:
    try:
        return ARCHITECTURES[architecture](schema)
    except RuntimeError:
        size = f"{schema.height}×{schema.width}"
        raise InvalidInput(f"Images of {size} pixels are too small for {architecture}.") from None


def _output(width: int, schema: Schema) -> nn.Linear:
    return nn.Linear(width, schema.num_classes)


@torch.no_grad()
def _width(network: nn.Module, schema: Schema) -> int:
    return int(network(torch.zeros(1, schema.channels, schema.height, schema.width)).shape[1])
