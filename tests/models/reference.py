"""The original's way: one module and one optimiser per teacher, label maps concatenated, a plain loop."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.data.dataset import Schema

State = dict[str, np.ndarray]


class DenseReference(nn.Module):
    def __init__(self, schema: Schema, state: State, teacher: int) -> None:
        super().__init__()
        own = {name: torch.from_numpy(state[f"parameters/{name}"][teacher]) for name in DENSE}
        self.classes = schema.num_classes
        hidden, inputs = own["input.weight"].shape
        self.input = nn.Linear(inputs + self.classes, hidden)
        self.output = nn.Linear(hidden, 1)
        weight = torch.cat([own["input.weight"], own["input.label"]], dim=1)
        _fill(self.input, weight, own["input.bias"])
        _fill(self.output, own["output.weight"], own["output.bias"])

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        one_hot = functional.one_hot(labels, self.classes).float()
        return self.output(functional.leaky_relu(self.input(torch.cat([images, one_hot], dim=1)), 0.2))[:, 0]

    def named_state(self) -> State:
        inputs = self.input.in_features - self.classes
        return {
            "input.weight": self.input.weight[:, :inputs],
            "input.label": self.input.weight[:, inputs:],
            "input.bias": self.input.bias,
            "output.weight": self.output.weight,
            "output.bias": self.output.bias,
        }


class ConvReference(nn.Module):
    def __init__(self, schema: Schema, state: State, teacher: int) -> None:
        super().__init__()
        own = {name: torch.from_numpy(state[f"parameters/{name}"][teacher]) for name in CONV}
        self.shape, self.classes = (schema.channels, schema.height, schema.width), schema.num_classes
        self.conv1, self.conv2 = (self._convolution(own, name) for name in ("conv1", "conv2"))
        self.dense, self.output = (self._linear(own, name) for name in ("dense", "output"))

    def _convolution(self, own: dict[str, Tensor], name: str) -> nn.Conv2d:
        images = own[f"{name}.weight"].unflatten(1, (-1, 5, 5))
        labels = own[f"{name}.label"].unflatten(1, (5, 5)).permute(0, 3, 1, 2)
        layer = nn.Conv2d(images.shape[1] + labels.shape[1], len(images), 5, stride=2)
        _fill(layer, torch.cat([images, labels], dim=1), own[f"{name}.bias"])
        return layer

    def _linear(self, own: dict[str, Tensor], name: str) -> nn.Linear:
        weight = torch.cat([own[f"{name}.weight"], own[f"{name}.label"]], dim=1)
        layer = nn.Linear(weight.shape[1], len(weight))
        _fill(layer, weight, own[f"{name}.bias"])
        return layer

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        one_hot = functional.one_hot(labels, self.classes).float()
        features = images.unflatten(1, self.shape)
        for layer in (self.conv1, self.conv2):
            maps = one_hot[:, :, None, None].expand(-1, -1, *features.shape[2:])
            features = functional.leaky_relu(layer(_same(torch.cat([features, maps], dim=1))), 0.2)
        hidden = functional.leaky_relu(self.dense(torch.cat([features.flatten(1), one_hot], dim=1)), 0.2)
        return self.output(torch.cat([hidden, one_hot], dim=1))[:, 0]

    def named_state(self) -> State:
        found = {}
        for name in ("conv1", "conv2"):
            layer = getattr(self, name)
            images = layer.in_channels - self.classes
            found[f"{name}.weight"] = layer.weight[:, :images].flatten(1)
            found[f"{name}.label"] = layer.weight[:, images:].permute(0, 2, 3, 1).flatten(1, 2)
            found[f"{name}.bias"] = layer.bias
        for name in ("dense", "output"):
            layer = getattr(self, name)
            inputs = layer.in_features - self.classes
            found[f"{name}.weight"], found[f"{name}.label"] = layer.weight[:, :inputs], layer.weight[:, inputs:]
            found[f"{name}.bias"] = layer.bias
        return found


DENSE = ("input.weight", "input.label", "input.bias", "output.weight", "output.bias")
CONV = tuple(
    f"{layer}.{part}" for layer in ("conv1", "conv2", "dense", "output") for part in ("weight", "label", "bias")
)
REFERENCES = {"dense": DenseReference, "conv": ConvReference}


def train(teacher: nn.Module, batches: list[tuple[Tensor, Tensor, Tensor, Tensor]]) -> None:
    optimiser = torch.optim.Adam(teacher.parameters(), lr=1e-3, betas=(0.5, 0.999))
    for images, labels, synthetic, synthetic_labels in batches:
        optimiser.zero_grad()
        real, fake = teacher(images, labels), teacher(synthetic, synthetic_labels)
        loss = functional.binary_cross_entropy_with_logits(real, torch.ones_like(real))
        loss = loss + functional.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))
        loss.backward()
        optimiser.step()


def direction(teacher: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    images = images.clone().requires_grad_()
    logits = teacher(images, labels)
    loss = functional.binary_cross_entropy_with_logits(logits, torch.ones_like(logits), reduction="sum")
    (gradient,) = torch.autograd.grad(loss, images)
    return -gradient


def _same(features: Tensor) -> Tensor:
    """Zeros as "same" padding of a 5×5 convolution of stride 2 adds them."""
    padding = []
    for side in (features.shape[3], features.shape[2]):
        total = max((-(-side // 2) - 1) * 2 + 5 - side, 0)
        padding += [total // 2, total - total // 2]
    return functional.pad(features, padding)


def _fill(layer: nn.Linear | nn.Conv2d, weight: Tensor, bias: Tensor) -> None:
    layer.weight = nn.Parameter(weight.clone())
    layer.bias = nn.Parameter(bias.clone())
