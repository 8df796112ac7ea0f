"""Warm start: a released Gaussian, and a small network that adds a correction to its samples.

A vote on a pixel is mostly noise. The refiner has a few thousand weights, each of which collects the votes of
all pixels and images, where a full generator spreads them over a million.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.generators.networks.image_network import ImageNetwork

_KERNEL = 5
_SLOPE = 0.2


class Refiner(nn.Module):
    """Three 5×5 convolutions; the label enters each as a bias. The last one starts at zero, hence so does all."""

    def __init__(self, schema: Schema, width: int, seed: int = 0) -> None:
        super().__init__()
        self._planes = (schema.channels, schema.height, schema.width)
        maps = (schema.channels, width, width, schema.channels)
        generator = torch.Generator().manual_seed(seed)
        weights = [_initial(maps[layer], maps[layer + 1], generator) for layer in range(2)]
        self.weights = nn.ParameterList([*weights, torch.zeros(schema.channels, width, _KERNEL, _KERNEL)])
        self.biases = nn.ParameterList(torch.zeros(schema.num_classes, outputs) for outputs in maps[1:])

    def forward(self, images: Tensor, one_hot: Tensor) -> Tensor:
        """The correction (n, d) of images (n, d), not clipped, with one-hot labels (n, classes)."""
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
        """x₀ (n, d), from the same random numbers as the Gaussian alone."""
        basis, means, factors = (value.cpu().numpy() for value in (self.basis, self.means, self.factors))
        points = rng.standard_normal((len(labels), self.rank), dtype=np.float32)
        for label in np.unique(labels):
            rows = labels == label
            points[rows] = means[label] + points[rows] @ factors[label].T
        return np.asarray(points @ basis.T)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """(n, d), not clipped."""
        correction: Tensor = self.refiner(inputs, self.one_hot(labels))
        return inputs + correction

    def settings(self) -> dict[str, Any]:
        """Architecture and sizes."""
        return {"architecture": "refined", "rank": self.rank, "width": self.width}


def _initial(inputs: int, outputs: int, generator: torch.Generator) -> Tensor:
    stddev = math.sqrt(2 / (inputs * _KERNEL**2))
    return torch.randn(outputs, inputs, _KERNEL, _KERNEL, generator=generator) * stddev
