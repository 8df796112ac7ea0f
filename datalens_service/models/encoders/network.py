"""The network of an encoder, and features of many images by it."""

from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from datalens_service.data.dataset import Images

Floats = NDArray[np.float32]


class EncoderNetwork(nn.Module):
    """Takes images (n, channels, height, width) in [0, 1]; gives float32 (n, d), vectors at most 1 long.

    No layer looks across the images of a batch.

    Attributes:
        images_at_once: Kernels, and the last bits of a result, depend on the size of a batch: it is always this.
    """

    images_at_once: ClassVar[int]

    @torch.no_grad()
    def encode(self, images: Images) -> Floats:
        """Features (n, d) of private or public images; a row is, to the last bit, a function of its own image alone."""
        blocks = [images[row : row + self.images_at_once] for row in range(0, len(images), self.images_at_once)]
        return np.concatenate([self(self._batch(block))[: len(block)].cpu().numpy() for block in blocks])

    def _batch(self, block: Images) -> Tensor:
        """A block as the network takes it, filled up with black images."""
        filled = np.pad(block, ((0, self.images_at_once - len(block)), (0, 0), (0, 0), (0, 0)))
        device = next(tensor.device for tensor in (*self.parameters(), *self.buffers()))
        return torch.from_numpy(np.ascontiguousarray(filled.transpose(0, 3, 1, 2))).to(device, torch.float32) / 255
