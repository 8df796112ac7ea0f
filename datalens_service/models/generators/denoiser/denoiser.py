"""A small convolutional denoiser: estimates an image without noise from a noisy one, its noise level and class.

Preconditioning, weights of noise levels and sampler are those of Karras et al. 2022, "Elucidating the Design Space of
Diffusion-Based Generative Models" (sections 3 and 5, algorithm 1). The network is a U-Net of two grids
(Ronneberger et al. 2015) without layers that look across a batch, so that every record has a gradient of its own.
"""

import math
from functools import partial
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.base.progress import Tell, be_silent
from datalens_service.data.dataset import Images, Labels
from datalens_service.models.generators.denoiser.denoiser_shape import BATCH, EMBEDDING, FREQUENCIES, DenoiserShape

PIXEL_STDDEV: Final = 0.5
"""Assumed standard deviation of pixels in [−1, 1]; public. Standard deviations of noise are in the same units."""

Layer = TypeVar("Layer", bound=nn.Module)

_MAPS_PER_GROUP: Final = 8
_LARGEST_FREQUENCY: Final = 50.0
_LEVEL_SCALE: Final = 0.25
_CURVATURE: Final = 5.0


class Denoiser(nn.Module):
    """D(x; σ, class) = c_skip·x + c_out·F(c_in·x, log σ, class)."""

    frequencies: Tensor

    def __init__(self, shape: DenoiserShape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        narrow, wide, numbers = shape.width, 2 * shape.width, shape.patch_numbers
        classes, grid = shape.schema.num_classes, shape.coarse_grid
        self.register_buffer(
            "frequencies", torch.exp(torch.linspace(0, math.log(_LARGEST_FREQUENCY), FREQUENCIES)), persistent=False
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first_embedding = nn.Linear(2 * FREQUENCIES + classes, EMBEDDING)
            self.second_embedding = nn.Linear(EMBEDDING, EMBEDDING)
            self.patches = _convolution(numbers, narrow)
            self.fine = _Block(narrow, narrow)
            self.coarsen = nn.Conv2d(narrow, wide, 3, stride=2, padding=1)
            self.places = nn.Parameter(torch.zeros(wide, *grid))
            self.class_places = nn.Parameter(torch.zeros(classes, shape.class_maps, *grid))
            self.class_mixture = nn.Conv2d(shape.class_maps, wide, 1, bias=False)
            self.coarse = nn.ModuleList(_Block(wide, wide) for _ in range(shape.blocks))
            self.refine = nn.Conv2d(wide, 4 * narrow, 1)
            self.joined = _Block(2 * narrow, narrow)
            self.pixels = _zero(_convolution(narrow, numbers))

    def forward(self, images: Tensor, stddevs: Tensor, one_hot: Tensor) -> Tensor:
        """Return images without noise.

        Args:
            images: (n, channels, height, width) in [−1, 1], plus noise.
            stddevs: (n,) standard deviations of the noise.
        """
        scale = stddevs[:, None, None, None]
        total = (scale.square() + PIXEL_STDDEV**2).sqrt()
        correction = self._correct(images / total, stddevs.log() * _LEVEL_SCALE, one_hot)
        return images * (PIXEL_STDDEV / total).square() + correction * (scale * PIXEL_STDDEV / total)

    def _correct(self, images: Tensor, levels: Tensor, one_hot: Tensor) -> Tensor:
        """Compute F of the class docstring; (n, channels, height, width)."""
        phases = levels[:, None] * self.frequencies
        embedding = self.first_embedding(torch.cat([phases.sin(), phases.cos(), one_hot], dim=1))
        embedding = functional.silu(self.second_embedding(functional.silu(embedding)))
        height, width = self.shape.padded
        below, beside = height - images.shape[2], width - images.shape[3]
        patches = functional.pixel_unshuffle(functional.pad(images, (0, beside, 0, below)), self.shape.patch)
        fine = self.fine(self.patches(patches), embedding)
        classes = self.class_mixture(torch.einsum("nc,cmhw->nmhw", one_hot, self.class_places))
        coarse = self.coarsen(fine) + self.places + classes
        for block in self.coarse:
            coarse = block(coarse, embedding)
        joined = torch.cat([fine, functional.pixel_shuffle(self.refine(coarse), 2)], dim=1)
        output = self.pixels(functional.silu(_normalize(self.joined(joined, embedding))))
        pixels: Tensor = functional.pixel_shuffle(output, self.shape.patch)
        return pixels[:, :, : images.shape[2], : images.shape[3]]


class _Block(nn.Module):
    """Two convolutions beside a shortcut; the embedding scales and shifts the maps between them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = _convolution(inputs, outputs), _zero(_convolution(outputs, outputs))
        self.modulation = _zero(nn.Linear(EMBEDDING, 2 * outputs))
        self.shortcut = nn.Conv2d(inputs, outputs, 1, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, maps: Tensor, embedding: Tensor) -> Tensor:
        """Return maps (n, outputs, rows, columns)."""
        scale, shift = self.modulation(embedding)[:, :, None, None].chunk(2, dim=1)
        hidden = _normalize(self.first(functional.silu(_normalize(maps)))) * (1 + scale) + shift
        result: Tensor = self.shortcut(maps) + self.second(functional.silu(hidden))
        return result


def loss_weight(stddevs: Tensor) -> Tensor:
    """Return λ(σ) of Karras et al., which makes squared errors of all noise levels alike."""
    return (stddevs.square() + PIXEL_STDDEV**2) / (stddevs * PIXEL_STDDEV).square()


def noise_schedule(largest: float, smallest: float, steps: int) -> list[float]:
    """Return falling standard deviations, and 0 at the end (Karras et al., equation 5)."""
    ends = [value ** (1 / _CURVATURE) for value in (largest, smallest)]
    inner = [(ends[0] + step / (steps - 1) * (ends[1] - ends[0])) ** _CURVATURE for step in range(steps)]
    return [*inner, 0.0]


@torch.no_grad()
def follow_path(
    network: Denoiser, images: Tensor, one_hot: Tensor, schedule: list[float], guidance_scale: float = 1.0
) -> Tensor:
    """Follow Heun's method along the deterministic path from noisy images to images without noise.

    Args:
        images: (n, channels, height, width), with noise of the first standard deviation.
        schedule: Standard deviations from `noise_schedule`.
        guidance_scale: Scale of classifier-free guidance (Ho and Salimans 2022, equation 6, whose w is one less). With
            1, nothing is moved, and the network is evaluated half as often.
    """
    denoise = partial(_guide, network, one_hot=one_hot, scale=guidance_scale)
    for stddev, following in pairwise(schedule):
        slope = (images - denoise(images, stddev)) / stddev
        moved = images + (following - stddev) * slope
        if following:
            slope = (slope + (moved - denoise(moved, following)) / following) / 2
            moved = images + (following - stddev) * slope
        images = moved
    return images


def _guide(network: Denoiser, images: Tensor, stddev: float, *, one_hot: Tensor, scale: float) -> Tensor:
    """Denoise, then move images away from those that the network sees in them for an equal mixture of all classes.

    It was never trained for a mixture. Classes enter it through linear layers, so it answers in between.
    """
    stddevs = torch.full((len(images),), stddev, device=images.device)
    denoised: Tensor = network(images, stddevs, one_hot)
    if scale == 1:
        return denoised
    of_any_class: Tensor = network(images, stddevs, torch.full_like(one_hot, 1 / one_hot.shape[1]))
    return of_any_class + scale * (denoised - of_any_class)


def _normalize(maps: Tensor) -> Tensor:
    normalized: Tensor = functional.group_norm(maps, max(1, maps.shape[1] // _MAPS_PER_GROUP))
    return normalized


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def _zero(layer: Layer) -> Layer:
    """Zero a layer, so that it adds nothing yet."""
    with torch.no_grad():
        for weight in layer.parameters():
            weight.zero_()
    return layer


_LEARNING_RATE: Final = 2e-3
_LAST_RATE: Final = 0.02
_WARMUP_STEPS: Final = 50
_AVERAGING: Final = 0.995

LOG_STDDEV_MEAN: Final = -0.9
LOG_STDDEV_DEVIATION: Final = 1.3
"""Noise levels of training are log-normal: those at which small grey images take shape. Public constants."""


def as_planes(images: Images) -> Tensor:
    """Turn uint8 images (n, height, width, channels) into float32 (n, channels, height, width) in [−1, 1]."""
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
    """Train the network, and replace its weights by their average along Adam's steps."""
    weights: list[Tensor] = list(network.parameters())
    average = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.Adam(weights, _LEARNING_RATE)
    planes, rng = as_planes(images), np.random.default_rng(seed)
    one_hot = functional.one_hot(torch.from_numpy(labels), network.shape.schema.num_classes).to(torch.float32)
    device = weights[0].device
    for step in range(steps):
        rows = rng.integers(len(images), size=min(batch, len(images)))
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
    """Update an exponential average in place, which forgets the initial weights early on."""
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


def _rate(step: int, steps: int) -> float:
    """Return a rate that rises at first, and falls in the second half."""
    return min(1.0, (step + 1) / _WARMUP_STEPS) * max(_LAST_RATE, min(1.0, 2 - 2 * step / steps))
