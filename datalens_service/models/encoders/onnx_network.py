"""The network of an encoder that is an ONNX file: its weights are the file."""

from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from datalens_service.data.dataset import Images
from datalens_service.data.sandbox import encoder
from datalens_service.errors import InvalidInput
from datalens_service.models.encoders.network import EncoderNetwork, Floats


class OnnxNetwork(EncoderNetwork):
    """Hands images to the confined process that runs the file; nothing of it is read here."""

    images_at_once: ClassVar[int] = encoder.IMAGES_AT_ONCE

    def __init__(self, channels: int, features: int) -> None:
        super().__init__()
        self._channels, self._features, self._graph = channels, features, b""

    def with_graph(self, content: bytes) -> Self:
        """The same with the file."""
        self._graph = content
        return self

    def get_extra_state(self) -> Tensor:
        """The file, among the weights of a released classifier."""
        return torch.from_numpy(np.frombuffer(self._graph, dtype=np.uint8).copy())

    def set_extra_state(self, state: Tensor) -> None:
        """Take the file from such weights."""
        self._graph = state.numpy().tobytes()

    def encode(self, images: Images) -> Floats:
        """As every encoder; the process sees one image after the other."""
        features = encoder.encode(self._graph, images)
        if features.shape[1] != self._features:
            raise InvalidInput(
                f"The encoder gives {features.shape[1]} features, not {self._features} as the spec says."
            )
        return features

    def forward(self, images: Tensor) -> Tensor:
        """(n, features) of images in [0, 1], which were bytes."""
        octets = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
        return torch.from_numpy(self.encode(octets.cpu().numpy())).to(images.device)

    def export(self) -> bytes:
        """The graph from bytes of one image to features, without a declared output."""
        return encoder.export(self._graph, self._channels)
