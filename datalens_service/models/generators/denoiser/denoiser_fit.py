"""A denoiser learns from released samples: post-processing, so it costs no privacy budget.

It then knows what images of such classes are like before it learns from records.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from datalens_service.data.dataset import Images, Labels
from datalens_service.models.generators.denoiser.denoiser import Denoiser, loss_weight
from datalens_service.phases import Tell, be_silent

BATCH: Final = 256
_LEARNING_RATE: Final = 2e-3
_LAST_RATE: Final = 0.02
_WARMUP_STEPS: Final = 50
_AVERAGING: Final = 0.995

LOG_STDDEV_MEAN: Final = -0.9
LOG_STDDEV_DEVIATION: Final = 1.3
"""Noise levels of training are log-normal: those at which small grey images take shape. Public constants."""


def as_planes(images: Images) -> Tensor:
    """float32 (n, channels, height, width) in [−1, 1] of uint8 images (n, height, width, channels)."""
    planes = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    return planes.to(torch.float32) / 127.5 - 1


def fit_denoiser(
    network: Denoiser,
    images: Images,
    labels: Labels,
    *,
    steps: int,
    seed: int,
    batch: int = BATCH,
    tell: Tell = be_silent,
) -> None:
    """Replace the weights by their average along Adam's steps."""
    weights: list[Tensor] = list(network.parameters())
    average = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.Adam(weights, _LEARNING_RATE)
    planes, rng = as_planes(images), np.random.default_rng(seed)
    one_hot = functional.one_hot(torch.from_numpy(labels), network.shape.schema.num_classes).to(torch.float32)
    device = weights[0].device
    for step, rows in enumerate(_batches(len(images), steps, batch, rng)):
        for group in optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * _rate(step, steps)
        loss = _denoising_loss(network, planes[rows].to(device), one_hot[rows].to(device), rng)
        optimizer.zero_grad()
        torch.autograd.backward([loss])
        optimizer.step()
        update_average(average, weights, step, _AVERAGING)
        tell((step + 1) / steps)
    with torch.no_grad():
        for weight, value in zip(weights, average, strict=True):
            weight.copy_(value)


def update_average(average: list[Tensor], weights: list[Tensor], step: int, decay: float) -> None:
    """Exponential average in place, which forgets the initial weights early on."""
    decay = min(decay, (1 + step) / (10 + step))
    with torch.no_grad():
        for value, weight in zip(average, weights, strict=True):
            value.lerp_(weight, 1 - decay)


def _denoising_loss(network: Denoiser, images: Tensor, one_hot: Tensor, rng: np.random.Generator) -> Tensor:
    stddevs = np.exp(LOG_STDDEV_MEAN + LOG_STDDEV_DEVIATION * rng.standard_normal(len(images), dtype=np.float32))
    noise = torch.from_numpy(rng.standard_normal(images.shape, dtype=np.float32)).to(images.device)
    levels = torch.from_numpy(stddevs).to(images.device)
    denoised = network(images + levels[:, None, None, None] * noise, levels, one_hot)
    errors: Tensor = (denoised - images).square().mean(dim=(1, 2, 3))
    return (loss_weight(levels) * errors).mean()


def _batches(count: int, steps: int, batch: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    for _ in range(steps):
        yield rng.integers(count, size=min(batch, count))


def _rate(step: int, steps: int) -> float:
    """Rises at first, and falls in the second half."""
    return min(1.0, (step + 1) / _WARMUP_STEPS) * max(_LAST_RATE, min(1.0, 2 - 2 * step / steps))
