"""The straightforward way: one torch module and one `torch.optim.Adam` per teacher, one teacher after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.clock import Clock
from datalens_service.data.dataset import Schema

HIDDEN, MAPS, UNITS = 16, 32, 256
TEACHERS = 100
"""Handled at most; their time is scaled to all."""


class DenseLoop(nn.Module):
    """The ensemble's dense teacher as an ordinary module."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        self.input = nn.Linear(schema.dimensions + schema.num_classes, HIDDEN)
        self.output = nn.Linear(HIDDEN, 1)

    def forward(self, images: Tensor, one_hot: Tensor) -> Tensor:
        return self.output(functional.leaky_relu(self.input(torch.cat([images, one_hot], dim=1)), 0.2))


class ConvLoop(nn.Module):
    """The ensemble's conv teacher as an ordinary module: labels as constant maps, appended at every layer."""

    def __init__(self, schema: Schema) -> None:
        super().__init__()
        classes, area = schema.num_classes, -(-schema.height // 4) * -(-schema.width // 4)
        self._shape = (schema.channels, schema.height, schema.width)
        first, second = schema.channels + classes, MAPS + classes
        self.conv1 = nn.Conv2d(schema.channels + classes, first, 5, stride=2, padding=2)
        self.conv2 = nn.Conv2d(first + classes, second, 5, stride=2, padding=2)
        self.dense = nn.Linear(second * area + classes, UNITS)
        self.output = nn.Linear(UNITS + classes, 1)

    def forward(self, images: Tensor, one_hot: Tensor) -> Tensor:
        features = images.view(-1, *self._shape)
        for layer in (self.conv1, self.conv2):
            maps = one_hot[:, :, None, None].expand(-1, -1, *features.shape[2:])
            features = functional.leaky_relu(layer(torch.cat([features, maps], dim=1)), 0.2)
        hidden = functional.leaky_relu(self.dense(torch.cat([features.flatten(1), one_hot], dim=1)), 0.2)
        return self.output(torch.cat([hidden, one_hot], dim=1))


MODULES: dict[str, Callable[[Schema], nn.Module]] = {"dense": DenseLoop, "conv": ConvLoop}


def train(teacher: nn.Module, optimiser: torch.optim.Adam, real: list[Tensor], synthetic: list[Tensor]) -> None:
    """One step on binary cross-entropy: real → 1, synthetic → 0."""
    optimiser.zero_grad()
    for (images, one_hot), target in ((real, 1.0), (synthetic, 0.0)):
        logits = teacher(images, one_hot)
        functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target)).backward()
    optimiser.step()


def gradient(teacher: nn.Module, images: Tensor, one_hot: Tensor) -> None:
    """Directions for the images."""
    leaf = images.clone().requires_grad_()
    torch.autograd.grad(functional.logsigmoid(teacher(leaf, one_hot)).sum(), leaf)


def plain_loop(architecture: str, schema: Schema, batch: tuple[Tensor, ...], clock: Clock) -> dict[str, Any]:
    """Times of a step of the plain loop, scaled to all teachers.

    Args:
        architecture: Of the teachers.
        schema: Of the images.
        batch: Records and labels of all teachers, synthetic images and labels of all groups; on the device.
        clock: Measures.
    """
    teachers = len(batch[0])
    timed = min(teachers, TEACHERS)
    real, labels, images, classes = batch
    modules = [MODULES[architecture](schema).to(clock.device) for _ in range(timed)]
    optimisers = [torch.optim.Adam(module.parameters(), lr=1e-3, betas=(0.5, 0.999)) for module in modules]
    one_hot = functional.one_hot(labels[:timed], schema.num_classes).float()
    synthetic = [images[0], functional.one_hot(classes[0], schema.num_classes).float()]

    def train_all() -> None:
        for number in range(timed):
            records = [real[number].float() / 255, one_hot[number]]
            train(modules[number], optimisers[number], records, synthetic)

    def all_gradients() -> None:
        for module in modules:
            gradient(module, *synthetic)

    scale = teachers / timed
    return {
        "teachers_timed": timed,
        "scaled": scale != 1,
        "train_seconds": clock.seconds(train_all) * scale,
        "gradient_seconds": clock.seconds(all_gradients) * scale,
    }
