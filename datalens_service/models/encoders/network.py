"""The network of an encoder, and features of many images by it."""

from typing import ClassVar, Final, Self

import numpy as np
import torch
from torch import Tensor, nn

from datalens_service.base.arrays import Floats32
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images
from datalens_service.data.intake.sandbox import encoder
from datalens_service.models.encoders.wavelets import MAPS, ScatteringTransform


class EncoderNetwork(nn.Module):
    """Takes images (n, channels, height, width) in [0, 1] and returns float32 (n, d), vectors at most 1 long.

    No layer looks across the images of a batch.

    Attributes:
        images_at_once: Kernels, and the last bits of a result, depend on the size of a batch: it is always this.
    """

    images_at_once: ClassVar[int]

    @torch.no_grad()
    def encode(self, images: Images) -> Floats32:
        """Encode private or public images as features (n, d); to the last bit, a row depends on its own image alone."""
        blocks = [images[row : row + self.images_at_once] for row in range(0, len(images), self.images_at_once)]
        return np.concatenate([self(self._batch(block))[: len(block)].cpu().numpy() for block in blocks])

    def _batch(self, block: Images) -> Tensor:
        """Bring a block into the form that the network takes, filled up with black images."""
        filled = np.pad(block, ((0, self.images_at_once - len(block)), (0, 0), (0, 0), (0, 0)))
        device = next(tensor.device for tensor in (*self.parameters(), *self.buffers()))
        return torch.from_numpy(np.ascontiguousarray(filled.transpose(0, 3, 1, 2))).to(device, torch.float32) / 255


_GROUPS: Final = 27
_OPPONENT: Final = ((1 / 3, 1 / 3, 1 / 3), (1 / 2, 0, -1 / 2), (-1 / 4, 1 / 2, -1 / 4))
"""Weights of red, green and blue."""
MIDDLE: Final = 0.5


class ScatteringNetwork(EncoderNetwork):
    """Features of one image by `ScatteringTransform`."""

    images_at_once: ClassVar[int] = 256

    def __init__(self, channels: int, *, opponent: bool = False, mirrored: bool = False) -> None:
        super().__init__()
        self.colours = nn.Sequential(OpponentColours()) if opponent else nn.Sequential()
        self.scattering = MeanOfMirrored(ScatteringTransform()) if mirrored else ScatteringTransform()
        self.normalise = nn.GroupNorm(_GROUPS, MAPS * channels, affine=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, features), at most 1 long, since the mean square of each group is at most 1 before."""
        normalised = self.normalise(self.scattering(self.colours(images))).flatten(start_dim=1)
        features: Tensor = normalised / normalised.shape[1] ** 0.5
        return features


class OpponentColours(nn.Module):
    """Brightness about a middle one, red against blue, and green against both.

    Beside averages that are all positive a group's normalisation leaves little of how they differ; and what colours
    share hides how they do.
    """

    mixture: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mixture", torch.tensor(_OPPONENT)[:, :, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Mix RGB images (n, 3, height, width) in [0, 1]."""
        return nn.functional.conv2d(images - MIDDLE, self.mixture)


class MeanOfMirrored(nn.Module):
    """The mean of a layer's maps of an image and of its mirror image."""

    def __init__(self, layer: ScatteringTransform) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, images: Tensor) -> Tensor:
        """Take images (n, channels, height, width)."""
        mean: Tensor = (self.layer(images) + self.layer(images.flip(-1))) / 2
        return mean


class OnnxNetwork(EncoderNetwork):
    """Hands images to the confined process that runs the file; this process never parses it."""

    images_at_once: ClassVar[int] = encoder.IMAGES_AT_ONCE

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self._channels, self._features, self._graph = channels, features, b""

    def with_graph(self, content: bytes) -> Self:
        self._graph = content
        return self

    def get_extra_state(self) -> Tensor:
        """Return the file, among the weights of a released classifier."""
        return torch.from_numpy(np.frombuffer(self._graph, dtype=np.uint8).copy())

    def set_extra_state(self, state: Tensor) -> None:
        """Take the file from such weights."""
        self._graph = state.numpy().tobytes()

    def encode(self, images: Images) -> Floats32:
        """Encode as every encoder does; the process sees one image after the other."""
        features = encoder.encode(self._graph, images)
        if features.shape[1] != self._features:
            raise InvalidInput(
                f"The encoder gives {features.shape[1]} features, not {self._features} as the spec says."
            )
        return features

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, features) of images in [0, 1], which were bytes."""
        octets = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
        return torch.from_numpy(self.encode(octets.cpu().numpy())).to(images.device)

    def export(self) -> bytes:
        """Return the graph from bytes of one image to features, without a declared output."""
        return encoder.export(self._graph, self._channels)
