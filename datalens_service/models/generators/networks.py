"""Generators that are one network: inputs drawn by NumPy, a torch module from inputs and labels to images."""

import math
from abc import ABC, abstractmethod
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.base.arrays import Tensors
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.generators.dct import dct_basis

# Batch norm counts its batches; nothing that is sampled depends on the count.
_COUNTER: Final = "num_batches_tracked"


class ImageNetwork(nn.Module, ABC):
    """A generator network. It sees released numbers only."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.schema = schema

    @abstractmethod
    def inputs(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw random inputs (n, …) for labels (n,); the same on every device."""

    @abstractmethod
    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return float32 images (n, d) before they are clipped to [0, 1], differentiable."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return JSON-compatible numbers from which the network is built again."""

    def one_hot(self, labels: Tensor) -> Tensor:
        """Turn labels (n,) into float32 (n, classes)."""
        return functional.one_hot(labels, self.schema.num_classes).to(torch.float32)

    def tensors(self) -> Tensors:
        """Return copies of weights and released constants."""
        state = {name: value for name, value in self.state_dict().items() if not name.endswith(_COUNTER)}
        return {name: np.array(value.cpu().numpy(), dtype=np.float32) for name, value in state.items()}

    def load(self, tensors: Tensors, *, partial: bool = False) -> None:
        """Take over what `tensors` returned.

        Args:
            partial: Leave those that are not named as they are.

        Raises:
            InvalidInput: Names or shapes are those of another network.
        """
        state = self.state_dict()
        expected = {name: tuple(value.shape) for name, value in state.items() if not name.endswith(_COUNTER)}
        if partial:
            expected = {name: shape for name, shape in expected.items() if name in tensors}
        if expected != {name: value.shape for name, value in tensors.items()}:
            raise InvalidInput("The generator's tensors do not fit its settings.")
        for name, value in tensors.items():
            state[name].copy_(torch.from_numpy(np.array(value)))

    def draw(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw float32 images (n, d) in [0, 1]; an image depends on its own input and label only."""
        self.eval()
        with torch.no_grad():
            images = self(torch.from_numpy(self.inputs(labels, rng)), torch.from_numpy(labels))
        return np.asarray(images.clamp(0.0, 1.0).numpy())


HIDDEN: Final = 1024
MAPS: Final = 128

_INITIAL_STDDEV: Final = 0.02


class DeconvGenerator(ImageNetwork):
    """Ψ(z, y) of DataLens (CCS 2021): dense, dense, two 5×5 transposed convolutions of stride 2, sigmoid.

    The label is appended at every layer.

    Batch norm after every layer but the last, in place of a bias. Its running statistics come from the student's
    own images, hence from released numbers, and are used as they are when sampling.

    Sides that are no multiple of 4 are rounded up, and the image is cropped.

    Args:
        hidden: Units of the first layer.
        maps: Maps of the second layer and of the first transposed convolution.
        seed: Seed of the initial weights, normal of standard deviation 0.02 (Radford et al. 2016).
    """

    def __init__(self, schema: Schema, z_dim: int, hidden: int = HIDDEN, maps: int = MAPS, seed: int = 0) -> None:
        super().__init__(schema)
        self.z_dim, self.hidden, self.maps = z_dim, hidden, maps
        self._sides = (-(-schema.height // 4), -(-schema.width // 4))
        features, classes = maps * self._sides[0] * self._sides[1], schema.num_classes
        # The layers' own initial weights would come from torch's global generator: leave it as it was.
        with torch.random.fork_rng(devices=[]):
            self.dense1 = nn.Linear(z_dim + classes, hidden, bias=False)
            self.dense2 = nn.Linear(hidden + classes, features, bias=False)
            self.deconv1 = _doubling(maps + classes, maps, bias=False)
            self.deconv2 = _doubling(maps + classes, schema.channels)
        self._initialise(seed)
        self.norm1, self.norm2, self.norm3 = nn.BatchNorm1d(hidden), nn.BatchNorm1d(features), nn.BatchNorm2d(maps)

    def inputs(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw z ~ U[-1, 1], (n, z_dim)."""
        return rng.uniform(-1.0, 1.0, (len(labels), self.z_dim)).astype(np.float32)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return images (n, d) in [0, 1]."""
        classes = self.one_hot(labels)
        maps = classes[:, :, None, None]
        features = functional.relu(self.norm1(self.dense1(torch.cat([inputs, classes], dim=1))))
        features = functional.relu(self.norm2(self.dense2(torch.cat([features, classes], dim=1))))
        features = features.view(-1, self.maps, *self._sides)
        features = functional.relu(self.norm3(self.deconv1(_append(features, maps))))
        images = torch.sigmoid(self.deconv2(_append(features, maps)))
        return images[:, :, : self.schema.height, : self.schema.width].flatten(1)

    def settings(self) -> dict[str, Any]:
        return {"architecture": "student", "z_dim": self.z_dim, "hidden": self.hidden, "maps": self.maps}

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, value in self.named_parameters():
            stddev = 0.0 if name.endswith("bias") else _INITIAL_STDDEV
            nn.init.normal_(value, std=stddev, generator=generator)


def _doubling(inputs: int, outputs: int, *, bias: bool = True) -> nn.ConvTranspose2d:
    """Return a transposed convolution that doubles both sides."""
    return nn.ConvTranspose2d(inputs, outputs, 5, stride=2, padding=2, output_padding=1, bias=bias)


def _append(features: Tensor, maps: Tensor) -> Tensor:
    return torch.cat([features, maps.expand(-1, -1, *features.shape[2:])], dim=1)


_GREY = 0.2
_WIDE, _NARROW = 1.7, 0.1


class ClassNetworks(ImageNetwork):
    """z → dense, rectifier, dense → cosine coefficients → image, with weights of its own for every class.

    A network that all classes share must first find out what a label means, and at the start of a run that takes most
    of the votes. Here classes have nothing in common, and a few weights each collect many votes.

    Args:
        frequencies: Cosine coefficients of an image.
        hidden: Units of the hidden layer.
    """

    basis: Tensor

    def __init__(self, schema: Schema, z_dim: int, frequencies: int, hidden: int = 128, seed: int = 0) -> None:
        super().__init__(schema)
        self.z_dim, self.frequencies, self.hidden = z_dim, frequencies, hidden
        classes, draws = schema.num_classes, torch.Generator().manual_seed(seed)
        self.inner = nn.Parameter(torch.randn(classes, z_dim, hidden, generator=draws) * (_WIDE / math.sqrt(z_dim)))
        self.inner_bias = nn.Parameter(torch.zeros(classes, hidden))
        outer = torch.randn(classes, hidden, frequencies, generator=draws) * (_NARROW / math.sqrt(hidden))
        self.outer = nn.Parameter(outer)
        self.outer_bias = nn.Parameter(torch.zeros(classes, frequencies))
        self.register_buffer("basis", torch.from_numpy(dct_basis(schema, frequencies)), persistent=False)

    def inputs(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw z, standard normal, (n, z_dim)."""
        return rng.standard_normal((len(labels), self.z_dim), dtype=np.float32)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return images (n, d), not clipped; hidden layers of other classes than an image's own are set to 0."""
        hidden = torch.relu(torch.matmul(inputs, self.inner) + self.inner_bias[:, None])
        selected = hidden.transpose(0, 1) * self.one_hot(labels)[..., None]
        coefficients = selected.flatten(1) @ self.outer.flatten(0, 1) + self.outer_bias[labels]
        return coefficients @ self.basis.T + _GREY

    def settings(self) -> dict[str, Any]:
        return {
            "architecture": "class_networks",
            "z_dim": self.z_dim,
            "frequencies": self.frequencies,
            "hidden": self.hidden,
        }


_KERNEL = 5
_SLOPE = 0.2


class Refiner(nn.Module):
    """Three 5×5 convolutions; the label enters each as a bias. The last one starts at zero, hence so does all.

    A vote on a pixel is mostly noise: a few thousand weights collect the votes of all pixels and images, where a full
    generator spreads them over a million.
    """

    def __init__(self, schema: Schema, width: int, seed: int = 0) -> None:
        super().__init__()
        self._planes = (schema.channels, schema.height, schema.width)
        maps = (schema.channels, width, width, schema.channels)
        generator = torch.Generator().manual_seed(seed)
        weights = [_initial(maps[layer], maps[layer + 1], generator) for layer in range(2)]
        self.weights = nn.ParameterList([*weights, torch.zeros(schema.channels, width, _KERNEL, _KERNEL)])
        self.biases = nn.ParameterList(torch.zeros(schema.num_classes, outputs) for outputs in maps[1:])

    def forward(self, images: Tensor, one_hot: Tensor) -> Tensor:
        """Return the correction (n, d) of images (n, d), not clipped, with one-hot labels (n, classes)."""
        features = images.view(-1, *self._planes)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            inputs = functional.leaky_relu(features, _SLOPE) if layer else features
            features = functional.conv2d(inputs, weight, padding=_KERNEL // 2) + (one_hot @ bias)[:, :, None, None]
        return features.flatten(1)


class RefinedGaussian(ImageNetwork):
    """x₀ + refiner(x₀, y), where x₀ = basis·(mean_y + factor_y·z) is a sample of the Gaussian, not yet clipped.

    Training works on the values before clipping, so a pixel at 0 or 1 keeps its gradient in both directions:
    with the gradient of a clipped pixel cut in one direction, noise of mean zero would push it inwards.

    The Gaussian's tensors `basis` (d, rank), `means` (classes, rank) and `factors` (classes, rank, rank) are
    zero until they are loaded.
    """

    basis: Tensor
    means: Tensor
    factors: Tensor

    def __init__(self, schema: Schema, rank: int, width: int = 8, seed: int = 0) -> None:
        super().__init__(schema)
        self.rank, self.width = rank, width
        self.register_buffer("basis", torch.zeros(schema.dimensions, rank))
        self.register_buffer("means", torch.zeros(schema.num_classes, rank))
        self.register_buffer("factors", torch.zeros(schema.num_classes, rank, rank))
        self.refiner = Refiner(schema, width, seed)

    def inputs(self, labels: Labels, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw x₀ (n, d), from the same random numbers as the Gaussian alone."""
        basis, means, factors = (value.cpu().numpy() for value in (self.basis, self.means, self.factors))
        points = rng.standard_normal((len(labels), self.rank), dtype=np.float32)
        for label in np.unique(labels):
            rows = labels == label
            points[rows] = means[label] + points[rows] @ factors[label].T
        return np.asarray(points @ basis.T)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return images (n, d), not clipped."""
        correction: Tensor = self.refiner(inputs, self.one_hot(labels))
        return inputs + correction

    def settings(self) -> dict[str, Any]:
        return {"architecture": "refined", "rank": self.rank, "width": self.width}


def _initial(inputs: int, outputs: int, generator: torch.Generator) -> Tensor:
    stddev = math.sqrt(2 / (inputs * _KERNEL**2))
    return torch.randn(outputs, inputs, _KERNEL, _KERNEL, generator=generator) * stddev


def build_network(settings: dict[str, Any], schema: Schema, seed: int = 0) -> ImageNetwork:
    """Build the network that `settings` describe, with initial weights from `seed`.

    Raises:
        InvalidInput: The settings name no architecture of this product.
    """
    match settings:
        case {"architecture": "student", "z_dim": int(z_dim)}:
            return DeconvGenerator(schema, z_dim, settings.get("hidden", HIDDEN), settings.get("maps", MAPS), seed)
        case {"architecture": "refined", "rank": int(rank), "width": int(width)}:
            return RefinedGaussian(schema, rank, width, seed)
        case {
            "architecture": "class_networks",
            "z_dim": int(z_dim),
            "frequencies": int(frequencies),
            "hidden": int(hidden),
        }:
            return ClassNetworks(schema, z_dim, frequencies, hidden, seed)
    raise InvalidInput("The generator's settings name no architecture of this product.")


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Draw images (n, d) in [0, 1] of a released network."""
    released = build_network(settings, schema)
    released.load(tensors)
    return released.draw(labels, rng)
