"""A small classifier whose last layer is trained on noisy gradients.

All layers but the last are learnt from released samples and stay as they are: post-processing. The gradient of the
last one is a sum over records of features ⊗ error, and each factor has a bounded length, so that sum has the shape
that `CrossProductSum` releases.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.base.arrays import Floats32
from datalens_service.base.progress import Tell, be_silent, tell_part, told_blocks
from datalens_service.data.dataset import Labels, Schema

_FIRST_MAPS: Final = 32
_BATCH: Final = 256
_ROWS: Final = 2048
_RECORDS: Final = 512
_LEARNING_RATE: Final = 1e-3
_SMALLEST_UNPADDED_SIDE: Final = 16
# Features that hardly vary over samples are not blown up beyond this part of the usual deviation.
_FLOOR: Final = 0.05


class LastLayerClassifier(nn.Module):
    """Two convolutions with pooling and a dense layer, as in the standard CNN; a linear layer sees both their features.

    Args:
        shape: (maps, side) of the features behind the convolutions, for images of any size.
        hidden: Units of the dense layer.

    Attributes:
        head: (maps·side² + hidden + 1, classes) weights of the last layer; the last row is the bias.
    """

    center: Tensor
    scale: Tensor
    head: Tensor

    def __init__(self, schema: Schema, shape: tuple[int, int], hidden: int, seed: int = 0) -> None:
        super().__init__()
        maps, side = shape
        padding = 1 if min(schema.height, schema.width) < _SMALLEST_UNPADDED_SIDE else 0
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.convolutions = nn.Sequential(
                *(nn.Conv2d(schema.channels, _FIRST_MAPS, 3, padding=padding), nn.MaxPool2d(2), nn.ReLU()),
                *(nn.Conv2d(_FIRST_MAPS, maps, 3, padding=padding), nn.AdaptiveMaxPool2d(side), nn.ReLU()),
                nn.Flatten(),
            )
            self.dense = nn.Sequential(nn.Linear(maps * side**2, hidden), nn.ReLU())
            self.output = nn.Linear(hidden, schema.num_classes)
        features = maps * side**2 + hidden
        self.register_buffer("center", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.register_buffer("head", torch.zeros(features + 1, schema.num_classes))
        self._planes = (schema.channels, schema.height, schema.width)

    def fit(self, images: Floats32, labels: Labels, epochs: int, seed: int, tell: Tell = be_silent) -> None:
        """Train convolutions and dense layer on released samples, and find the centre and scale of features."""
        pixels, targets = torch.from_numpy(images), torch.from_numpy(labels)
        device = self.center.device
        optimizer = torch.optim.Adam(self.parameters(), _LEARNING_RATE)
        order = torch.Generator().manual_seed(seed)
        for epoch in range(epochs):
            shuffled = torch.randperm(len(targets), generator=order)
            for block in told_blocks(len(targets), _BATCH, tell_part(tell, epoch / epochs, (epoch + 1) / epochs)):
                rows = shuffled[block]
                hidden = self.dense(self._convolve(pixels[rows]))
                loss = functional.cross_entropy(self.output(hidden), targets[rows].to(device))
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
        self._standardise(pixels[: 4 * _ROWS])

    @torch.no_grad()
    def features(self, images: Floats32) -> Floats32:
        """Return the input of the last layer for images (n, d): (n, features + 1), its constant 1 included."""
        blocks = torch.split(torch.from_numpy(images), _ROWS)
        standard = torch.cat([((self._raw_features(block) - self.center) * self.scale).cpu() for block in blocks])
        extended = torch.cat([standard, torch.ones(len(standard), 1)], dim=1) / math.sqrt(2)
        return np.asarray(extended.numpy(), dtype=np.float32)

    def features_of_records(self, images: Floats32) -> Floats32:
        """Compute `features` of private images, always as many at once: kernels are chosen by the size of a batch."""
        blocks = [images[row : row + _RECORDS] for row in range(0, len(images), _RECORDS)]
        features = [self.features(np.pad(block, ((0, _RECORDS - len(block)), (0, 0)))) for block in blocks]
        return np.concatenate(features)[: len(images)]

    def predict(self, images: Floats32) -> Labels:
        """Return the predicted class of each image (n, d), (n,)."""
        return np.asarray((self.features(images) @ self.head.cpu().numpy()).argmax(axis=1))

    def tensors(self) -> dict[str, Floats32]:
        """Return copies of the weights."""
        return {name: np.array(value.cpu().numpy(), dtype=np.float32) for name, value in self.state_dict().items()}

    @classmethod
    def from_tensors(cls, schema: Schema, tensors: dict[str, Floats32]) -> LastLayerClassifier:
        """Build a network from what `tensors` returned."""
        hidden, features = tensors["dense.0.weight"].shape
        maps = len(tensors["convolutions.3.bias"])
        network = cls(schema, (maps, math.isqrt(features // maps)), hidden)
        network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in tensors.items()})
        return network

    def _convolve(self, images: Tensor) -> Tensor:
        maps: Tensor = self.convolutions(images.to(self.center.device).view(-1, *self._planes))
        return maps

    def _raw_features(self, images: Tensor) -> Tensor:
        convolved = self._convolve(images)
        return torch.cat([convolved, self.dense(convolved)], dim=1)

    @torch.no_grad()
    def _standardise(self, samples: Tensor) -> None:
        raw = torch.cat([self._raw_features(block) for block in torch.split(samples, _ROWS)])
        deviation = raw.std(dim=0)
        self.center.copy_(raw.mean(dim=0))
        self.scale.copy_(1 / (deviation + _FLOOR * deviation.mean() + torch.finfo().tiny))
        self.scale /= ((raw - self.center) * self.scale).norm(dim=1).mean()
