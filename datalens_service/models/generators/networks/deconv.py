"""The student generator Ψ(z, y) of DataLens (CCS 2021): two transposed convolutions (deconvolutions)."""

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Labels, Schema
from datalens_service.models.generators.networks.image_network import ImageNetwork

HIDDEN: Final = 1024
MAPS: Final = 128

_INITIAL_STDDEV: Final = 0.02


class DeconvGenerator(ImageNetwork):
    """Dense, dense, two 5×5 transposed convolutions of stride 2, sigmoid; the label is appended at every layer.

    Batch norm after every layer but the last, in place of a bias. Its running statistics come from the student's
    own images, hence from released numbers, and are used as they are when sampling.

    Sides that are no multiple of 4 are rounded up, and the image is cropped.

    Args:
        hidden: Units of the first layer.
        maps: Maps of the second layer and of the first transposed convolution.
        seed: Of the initial weights, normal of standard deviation 0.02 (Radford et al. 2016).
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
        """z ~ U[-1, 1], (n, z_dim)."""
        return rng.uniform(-1.0, 1.0, (len(labels), self.z_dim)).astype(np.float32)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """(n, d) in [0, 1]."""
        classes = self.one_hot(labels)
        maps = classes[:, :, None, None]
        features = functional.relu(self.norm1(self.dense1(torch.cat([inputs, classes], dim=1))))
        features = functional.relu(self.norm2(self.dense2(torch.cat([features, classes], dim=1))))
        features = features.view(-1, self.maps, *self._sides)
        features = functional.relu(self.norm3(self.deconv1(_append(features, maps))))
        images = torch.sigmoid(self.deconv2(_append(features, maps)))
        return images[:, :, : self.schema.height, : self.schema.width].flatten(1)

    def settings(self) -> dict[str, Any]:
        """Architecture and sizes."""
        return {"architecture": "student", "z_dim": self.z_dim, "hidden": self.hidden, "maps": self.maps}

    def _initialise(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for name, value in self.named_parameters():
            stddev = 0.0 if name.endswith("bias") else _INITIAL_STDDEV
            nn.init.normal_(value, std=stddev, generator=generator)


def _doubling(inputs: int, outputs: int, *, bias: bool = True) -> nn.ConvTranspose2d:
    """A transposed convolution that doubles both sides."""
    return nn.ConvTranspose2d(inputs, outputs, 5, stride=2, padding=2, output_padding=1, bias=bias)


def _append(features: Tensor, maps: Tensor) -> Tensor:
    return torch.cat([features, maps.expand(-1, -1, *features.shape[2:])], dim=1)
