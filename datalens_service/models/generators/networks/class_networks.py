"""A student with a small network of its own for every class: few weights, each of which collects many votes.

A network that all classes share must first find out what a label means, and at the start of a run that takes most of
the votes. Here classes have nothing in common, and the images are smooth: the network's numbers are coefficients of
low cosine frequencies.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.networks.image_network import ImageNetwork

_GREY = 0.2
_WIDE, _NARROW = 1.7, 0.1


class ClassNetworks(ImageNetwork):
    """z → dense, rectifier, dense → cosine coefficients → image, with weights of its own for every class.

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
        """z, standard normal, (n, z_dim)."""
        return rng.standard_normal((len(labels), self.z_dim), dtype=np.float32)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """(n, d), not clipped. Every class's hidden layer sees every input; those of other classes are set to 0."""
        hidden = torch.relu(torch.matmul(inputs, self.inner) + self.inner_bias[:, None])
        selected = hidden.transpose(0, 1) * self.one_hot(labels)[..., None]
        coefficients = selected.flatten(1) @ self.outer.flatten(0, 1) + self.outer_bias[labels]
        return coefficients @ self.basis.T + _GREY

    def settings(self) -> dict[str, Any]:
        """Architecture and sizes."""
        return {
            "architecture": "class_networks",
            "z_dim": self.z_dim,
            "frequencies": self.frequencies,
            "hidden": self.hidden,
        }
