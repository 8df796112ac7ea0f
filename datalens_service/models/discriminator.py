"""A released discriminator: judges how real an image of a class looks, and where it should move to look more so.

It learns from released numbers only; its judgement is post-processing. The network is that of a classifier, and its
output for a class is the logit of "this is a real image of that class".
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Schema
from datalens_service.models.classifiers.architectures import build_network


def logits_of_labels(outputs: Tensor, labels: Tensor) -> Tensor:
    """Select the outputs for the classes that the images belong to, (n,).

    Args:
        outputs: (n, classes).
        labels: int64 (n,).
    """
    return outputs.gather(1, labels[:, None]).squeeze(1)


def image_logits(network: nn.Module, schema: Schema, images: Tensor, labels: Tensor) -> Tensor:
    """Return logits (n,) of float32 images (n, d) in [0, 1]."""
    return logits_of_labels(network(images.view(-1, schema.channels, schema.height, schema.width)), labels)


def image_directions(network: nn.Module, schema: Schema, images: Tensor, labels: Tensor) -> NDArray[np.float32]:
    """Return directions (n, d) in which images look more real: the gradient of log sigmoid of their logits."""
    leaves = images.detach().clone().requires_grad_()
    (gradients,) = torch.autograd.grad(
        functional.logsigmoid(image_logits(network, schema, leaves, labels)).sum(), leaves
    )
    return np.asarray(gradients.cpu().numpy(), dtype=np.float32)


class Discriminator:
    """A network and its Adam state."""

    def __init__(self, settings: dict[str, Any], schema: Schema, device: str, seed: int, learning_rate: float) -> None:
        self.network: nn.Module = build_network(settings, schema, seed).to(device)
        self._schema = schema
        self._optimizer = torch.optim.Adam(self.network.parameters(), learning_rate, betas=(0.5, 0.999))

    def logits(self, images: Tensor, labels: Tensor) -> Tensor:
        return image_logits(self.network, self._schema, images, labels)

    def fit(self, images: Tensor, labels: Tensor, targets: Tensor, *, hard: bool, bounded: bool) -> None:
        """Take one step towards released scores.

        Args:
            targets: float32 (n,), scores with noise.
            hard: Take them for labels, real above one half, in cross-entropy; else squared error.
            bounded: True if scores are shares in [0, 1], and not logits.
        """
        logits = self.logits(images, labels)
        if hard:
            loss = functional.binary_cross_entropy_with_logits(logits, (targets > 0.5).to(logits.dtype))
        else:
            loss = functional.mse_loss(logits.sigmoid() if bounded else logits, targets)
        self._optimizer.zero_grad()
        torch.autograd.backward([loss])
        self._optimizer.step()

    def directions(self, images: Tensor, labels: Tensor) -> NDArray[np.float32]:
        return image_directions(self.network, self._schema, images, labels)
