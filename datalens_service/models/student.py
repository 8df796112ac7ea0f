"""Student generators: networks that follow released votes and see nothing else.

`Student` is the original's network (algorithms.md, section 1). `RefinedGaussian` starts as the class-conditional
Gaussian of the moments method, exactly, and learns a small correction: every pixel's vote is collected into a
few thousand weights, so that little signal per pixel is enough.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Labels, Schema

Tensors = dict[str, NDArray[np.float32]]

_LEAK = 0.2
_DENSE = 1024
_MAPS = 128


class StudentNetwork(Protocol):
    """What draws images from a latent vector and a label."""

    def latent(self, n: int, rng: np.random.Generator) -> Tensor:
        """(n, z) latent vectors."""

    def settings(self) -> dict[str, Any]:
        """What `network` needs to build it again."""

    def __call__(self, latent: Tensor, labels: Tensor) -> Tensor:
        """(n, d) images in [0, 1]."""


class Student(nn.Module):
    """Dense 1024, dense 128·(h/4)·(w/4), two transposed convolutions 5×5, sigmoid; the label enters every layer.

    Args:
        schema: Of the images; sides that are no multiple of 4 are drawn larger and cropped.
        z_dim: Length of the latent vector, uniform in [−1, 1].
    """

    def __init__(self, schema: Schema, z_dim: int) -> None:
        super().__init__()
        self._schema, self._z_dim, classes = schema, z_dim, schema.num_classes
        self._height, self._width = -(-schema.height // 4), -(-schema.width // 4)
        area = self._height * self._width
        self.dense = nn.Linear(z_dim + classes, _DENSE)
        self.dense_norm = nn.BatchNorm1d(_DENSE)
        self.spread = nn.Linear(_DENSE + classes, _MAPS * area)
        self.spread_norm = nn.BatchNorm1d(_MAPS * area)
        shape = {"kernel_size": 5, "stride": 2, "padding": 2, "output_padding": 1}
        self.grow = nn.ConvTranspose2d(_MAPS + classes, _MAPS, **shape)
        self.grow_norm = nn.BatchNorm2d(_MAPS)
        self.draw = nn.ConvTranspose2d(_MAPS + classes, schema.channels, **shape)

    def latent(self, n: int, rng: np.random.Generator) -> Tensor:
        """(n, z_dim) uniform in [−1, 1]."""
        return torch.from_numpy(rng.uniform(-1, 1, (n, self._z_dim)).astype(np.float32))

    def settings(self) -> dict[str, Any]:
        """Architecture and latent size."""
        return {"architecture": "student", "z_dim": self._z_dim}

    def forward(self, latent: Tensor, labels: Tensor) -> Tensor:
        """(n, d) images in [0, 1]."""
        one_hot = functional.one_hot(labels, self._schema.num_classes).to(latent.dtype)
        hidden = self.dense_norm(self.dense(torch.cat([latent, one_hot], dim=1))).relu()
        hidden = self.spread_norm(self.spread(torch.cat([hidden, one_hot], dim=1))).relu()
        maps = hidden.view(-1, _MAPS, self._height, self._width)
        maps = self.grow_norm(self.grow(_with_label(maps, one_hot))).relu()
        pixels = self.draw(_with_label(maps, one_hot)).sigmoid()
        return pixels[:, :, : self._schema.height, : self._schema.width].flatten(1)


class RefinedGaussian(nn.Module):
    """A released Gaussian followed by a residual network of three 5×5 convolutions.

    The last convolution starts at zero, so that before the first vote this is the Gaussian itself.

    Args:
        schema: Of the images.
        rank: Dimensions of the Gaussian's subspace.
        width: Maps of the hidden layers.
    """

    def __init__(self, schema: Schema, rank: int, width: int) -> None:
        super().__init__()
        self._schema, self._rank, self._width, classes = schema, rank, width, schema.num_classes
        self.register_buffer("basis", torch.zeros(schema.dimensions, rank))
        self.register_buffer("means", torch.zeros(classes, rank))
        self.register_buffer("factors", torch.zeros(classes, rank, rank))
        self.enter = nn.Conv2d(schema.channels, width, 5, padding=2)
        self.label = nn.Embedding(classes, width)
        self.inner = nn.Conv2d(width, width, 5, padding=2)
        self.leave = nn.Conv2d(width, schema.channels, 5, padding=2)
        for tensor in (self.label.weight, self.leave.weight, self.leave.bias):
            nn.init.zeros_(tensor)

    def latent(self, n: int, rng: np.random.Generator) -> Tensor:
        """(n, rank) standard normal."""
        return torch.from_numpy(rng.standard_normal((n, self._rank), dtype=np.float32))

    def settings(self) -> dict[str, Any]:
        """Architecture, rank and width."""
        return {"architecture": "refined", "rank": self._rank, "width": self._width}

    def forward(self, latent: Tensor, labels: Tensor) -> Tensor:
        """(n, d) images in [0, 1]; the gradient passes through the clipping unchanged.

        A pixel that the Gaussian puts below 0 shows as 0; a vote to brighten it must still reach the weights.
        """
        points = self.means[labels] + torch.einsum("nij,nj->ni", self.factors[labels], latent)
        start = (points @ self.basis.T).view(-1, self._schema.channels, self._schema.height, self._schema.width)
        shown = start.clamp(0, 1)
        hidden = functional.leaky_relu(self.enter(shown) + self.label(labels)[:, :, None, None], _LEAK)
        hidden = functional.leaky_relu(self.inner(hidden), _LEAK)
        pixels = (start + self.leave(hidden)).flatten(1)
        return pixels + (pixels.clamp(0, 1) - pixels).detach()


def _with_label(maps: Tensor, one_hot: Tensor) -> Tensor:
    return torch.cat([maps, one_hot[:, :, None, None].expand(-1, -1, *maps.shape[2:])], dim=1)


def network(settings: dict[str, Any], schema: Schema, seed: int = 0) -> Student | RefinedGaussian:
    """The network that `settings` describe, with weights drawn from `seed` and no trace on other draws."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _fresh(settings, schema)


def _fresh(settings: dict[str, Any], schema: Schema) -> Student | RefinedGaussian:
    if settings["architecture"] == "student":
        return Student(schema, settings["z_dim"])
    return RefinedGaussian(schema, settings["rank"], settings["width"])


def draw(
    tensors: Tensors, settings: dict[str, Any], schema: Schema, labels: Labels, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Images of a stored student.

    Args:
        tensors: Weights and buffers, as `StudentTrainer.tensors` gave them.
        settings: As `StudentTrainer.settings` gave them.
        schema: Of the images.
        labels: (n,) classes.
        rng: For the latent vectors.

    Returns:
        float32 (n, d) in [0, 1], in channel, height, width order.
    """
    student = network(settings, schema)
    student.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()}, strict=False)
    student.eval()
    with torch.inference_mode():
        return student(student.latent(len(labels), rng), torch.from_numpy(labels)).numpy()
