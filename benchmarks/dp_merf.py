"""DP-MERF, for comparison: a generator that matches one noisy mean embedding of all records.

Harder, Adamczewski and Park 2021, "DP-MERF: Differentially Private Mean Embeddings with Random Features for Practical
Privacy-preserving Data Generation". The kernel's width is a public constant, not the median distance of records, and
noise is drawn in floating point.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.fixed_extractor import pixels
from datalens_service.data.dataset import Dataset, Images, Labels
from datalens_service.privacy.accounting import mu_for_epsilon

FEATURES: Final = 1_000
STEPS: Final = 300
_BATCH: Final = 500
_CODE: Final = 10
_HIDDEN: Final = 200
_LEARNING_RATE: Final = 1e-2
_SQUARED_WIDTH: Final = 1 / 8
"""Per pixel and colour: 98 for MNIST, where the authors' median is 105."""


def draw_images(data: Dataset, epsilon: float, delta: float, count: int) -> tuple[Images, Labels]:
    """Images of a generator that was trained on the embedding, every class in turn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        frequencies = torch.randn(data.schema.dimensions, FEATURES // 2)
        frequencies /= (_SQUARED_WIDTH * data.schema.dimensions) ** 0.5
        target = _noisy_embedding(data, frequencies, mu_for_epsilon(epsilon, delta))
        generator = _trained(data, frequencies, target)
        labels = torch.arange(count) % data.schema.num_classes
        with torch.no_grad():
            parts = [_generate(generator, part, data.schema.num_classes) for part in torch.split(labels, _BATCH)]
    shape = (data.schema.channels, data.schema.height, data.schema.width)
    pixels = torch.cat([(part * 255).round().to(torch.uint8) for part in parts]).view(-1, *shape)
    return pixels.permute(0, 2, 3, 1).numpy(), labels.numpy()


def _noisy_embedding(data: Dataset, frequencies: Tensor, mu: float) -> Tensor:
    """(features, classes): a record adds a vector of length 1 to the column of its class."""
    total = torch.zeros(FEATURES, data.schema.num_classes)
    for rows in np.array_split(np.arange(len(data.train.labels)), -(-len(data.train.labels) // _BATCH)):
        members = nn.functional.one_hot(torch.tensor(data.train.labels[rows]), data.schema.num_classes).float()
        total += _embed(pixels(data.train.images[rows]).flatten(1), frequencies).T @ members
    return (total + torch.randn(total.shape) / mu) / data.schema.num_units


def _trained(data: Dataset, frequencies: Tensor, target: Tensor) -> nn.Module:
    classes = data.schema.num_classes
    generator = nn.Sequential(
        *(nn.Linear(_CODE + classes, _HIDDEN), nn.BatchNorm1d(_HIDDEN), nn.ReLU()),
        *(nn.Linear(_HIDDEN, _HIDDEN), nn.BatchNorm1d(_HIDDEN), nn.ReLU()),
        *(nn.Linear(_HIDDEN, data.schema.dimensions), nn.Sigmoid()),
    )
    optimizer = torch.optim.Adam(generator.parameters(), _LEARNING_RATE)
    for _ in range(STEPS):
        labels = torch.randint(classes, (_BATCH,))
        members = nn.functional.one_hot(labels, classes).float()
        embedded = _embed(_generate(generator, labels, classes), frequencies).T @ members / _BATCH
        loss = (embedded - target).square().sum()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    return generator.eval()


def _generate(generator: nn.Module, labels: Tensor, classes: int) -> Tensor:
    given = torch.cat([torch.randn(len(labels), _CODE), nn.functional.one_hot(labels, classes).float()], dim=1)
    generated: Tensor = generator(given)
    return generated


def _embed(vectors: Tensor, frequencies: Tensor) -> Tensor:
    """(n, features), of length 1: random Fourier features of a Gaussian kernel (Rahimi and Recht 2007)."""
    angles = vectors @ frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1) * (2 / FEATURES) ** 0.5
