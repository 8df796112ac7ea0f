"""The original's way: each teacher by itself with an optimiser of its own, label maps concatenated, a plain loop."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from datalens_service.data.dataset import Schema

Weights = dict[str, Tensor]


def unstack(state: dict[str, np.ndarray], teacher: int) -> Weights:
    """Leaves of one teacher."""
    parts = {name.removeprefix("parameters/"): value for name, value in state.items() if name.startswith("parameters/")}
    return {name: torch.from_numpy(value[teacher].copy()).requires_grad_() for name, value in parts.items()}


def logits(own: Weights, schema: Schema, images: Tensor, labels: Tensor) -> Tensor:
    """Of images (n, d), by a dense or a convolutional teacher."""
    one_hot = functional.one_hot(labels, schema.num_classes).float()
    if "input.weight" in own:
        hidden = functional.leaky_relu(_dense(own, "input", images, one_hot), 0.2)
        return functional.linear(hidden, own["output.weight"], own["output.bias"])[:, 0]
    features = images.unflatten(1, (schema.channels, schema.height, schema.width))
    for name in ("conv1", "conv2"):
        maps = one_hot[:, :, None, None].expand(-1, -1, *features.shape[2:])
        kernels = own[f"{name}.weight"].unflatten(1, (-1, 5, 5)), own[f"{name}.label"].unflatten(1, (5, 5))
        weight = torch.cat([kernels[0], kernels[1].permute(0, 3, 1, 2)], dim=1)
        padded = _same(torch.cat([features, maps], dim=1))
        features = functional.leaky_relu(functional.conv2d(padded, weight, own[f"{name}.bias"], stride=2), 0.2)
    hidden = functional.leaky_relu(_dense(own, "dense", features.flatten(1), one_hot), 0.2)
    return _dense(own, "output", hidden, one_hot)[:, 0]


def train(own: Weights, schema: Schema, batches: list[tuple[Tensor, Tensor, Tensor, Tensor]]) -> None:
    optimiser = torch.optim.Adam(own.values(), lr=1e-3, betas=(0.5, 0.999))
    for images, labels, synthetic, synthetic_labels in batches:
        optimiser.zero_grad()
        real, fake = logits(own, schema, images, labels), logits(own, schema, synthetic, synthetic_labels)
        loss = functional.binary_cross_entropy_with_logits(real, torch.ones_like(real))
        loss = loss + functional.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))
        loss.backward()
        optimiser.step()


def direction(own: Weights, schema: Schema, images: Tensor, labels: Tensor) -> Tensor:
    images = images.clone().requires_grad_()
    said = logits(own, schema, images, labels)
    loss = functional.binary_cross_entropy_with_logits(said, torch.ones_like(said), reduction="mean")
    (gradient,) = torch.autograd.grad(loss, images)
    return -gradient


def _dense(own: Weights, layer: str, values: Tensor, one_hot: Tensor) -> Tensor:
    weight = torch.cat([own[f"{layer}.weight"], own[f"{layer}.label"]], dim=1)
    return functional.linear(torch.cat([values, one_hot], dim=1), weight, own[f"{layer}.bias"])


def _same(features: Tensor) -> Tensor:
    """Zeros as "same" padding of a 5×5 convolution of stride 2 adds them."""
    padding = []
    for side in (features.shape[3], features.shape[2]):
        total = max((-(-side // 2) - 1) * 2 + 5 - side, 0)
        padding += [total // 2, total - total // 2]
    return functional.pad(features, padding)
