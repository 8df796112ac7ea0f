"""Gradient inversion: images that would have produced the gradients an attacker sees (Geiping et al. 2020).

The attacker knows network, weights and label of a record, and one released contribution: far more than a real step of
many records shows. A small error proves leakage; a large one proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Final

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from datalens_service.errors import InvalidInput
from datalens_service.mechanisms.von_mises_fisher import unit_directions
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.randomness import NoiseSource
from datalens_service.strict import Integer, Number

_STEP_CUTS: Final = (3 / 8, 5 / 8, 7 / 8)
_TINY: Final = 1e-12


class InversionSettings(BaseModel):
    """How the attacker searches.

    Attributes:
        iterations: Of Adam, on the sign of the gradient.
        step_size: In units of the pixel range; a tenth after 3/8, 5/8 and 7/8 of the iterations.
        total_variation: Weight of the images' total variation.
        restarts: Random starts, of which the best cosine wins.
        seed: Of the starts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: Integer = Field(default=1000, ge=1, le=100_000)
    step_size: Annotated[Number, Field(gt=0, le=1)] = 0.1
    total_variation: Annotated[Number, Field(ge=0, le=10)] = 1e-3
    restarts: Integer = Field(default=2, ge=1, le=16)
    seed: Integer = Field(default=0, ge=0, lt=2**63)


def observe_gradients(
    network: nn.Module, images: Tensor, labels: Tensor, clip_norm: float, noise_multiplier: float, seed: int = 0
) -> Tensor:
    """(n, weights) contributions as an attacker would see them: clipped, with Gaussian noise on every coordinate.

    Args:
        network: Takes (n, channels, height, width) in [0, 1].
        images: Private.
        labels: (n,) classes.
        clip_norm: Largest L2 norm of a contribution; infinite for raw gradients.
        noise_multiplier: σ over `clip_norm`; 0 adds none.
        seed: Of noise. This noise simulates a release; it protects nothing.
    """
    gradients = PerRecordGradients(network, _loss)
    rows = torch.cat(list(gradients.chunks([images, labels])))
    if math.isfinite(clip_norm):
        rows = rows * (clip_norm / rows.norm(dim=1, keepdim=True).clamp_min(_TINY)).clamp_max(1)
    if noise_multiplier == 0:
        return rows
    if not math.isfinite(clip_norm):
        raise InvalidInput("Noise is relative to clip_norm: name a finite one.")
    random = torch.Generator().manual_seed(seed)
    return rows + noise_multiplier * clip_norm * torch.randn(rows.shape, generator=random)


def observe_directions(network: nn.Module, images: Tensor, labels: Tensor, kappa: float) -> Tensor:
    """(n, weights) contributions with von Mises-Fisher noise, as an attacker would see them in a batch of one.

    Args:
        network: Takes (n, channels, height, width) in [0, 1].
        images: Private.
        labels: (n,) classes.
        kappa: Concentration of the noise.
    """
    gradients = PerRecordGradients(network, _loss)
    rows = torch.cat(list(gradients.chunks([images, labels]))).to(torch.float64).numpy()
    noisy = [NoiseSource().directions(unit_directions(row[None]), kappa)[0] for row in rows]
    return torch.from_numpy(np.stack(noisy)).to(torch.float32)


def invert_gradients(
    network: nn.Module,
    observed: Tensor,
    labels: Tensor,
    shape: Sequence[int],
    settings: InversionSettings | None = None,
) -> Tensor:
    """(n, channels, height, width) images in [0, 1] whose gradients point where the observed ones do.

    The network needs a second derivative: with ReLU it vanishes almost everywhere and the attack is weaker.

    Args:
        network: With the weights at which the gradients were taken.
        observed: (n, weights) contributions.
        labels: (n,) classes, known to the attacker.
        shape: (channels, height, width).
        settings: Of the search.
    """
    settings = settings or InversionSettings()
    random = torch.Generator().manual_seed(settings.seed)
    distance = _DistanceToGradient(network, settings.total_variation)
    best = torch.full((len(labels),), math.inf)
    result = torch.zeros((len(labels), *shape))
    for _ in range(settings.restarts):
        start = torch.rand((len(labels), *shape), generator=random)
        images, distances = _descend(distance, start, observed, labels, settings)
        closer = distances < best
        best, result = torch.where(closer, distances, best), torch.where(closer[:, None, None, None], images, result)
    return result


def squared_errors(images: Tensor, originals: Tensor, spread: float) -> Tensor:
    """(n,) mean squared error of each image, in pixels divided by their public standard deviation."""
    errors: Tensor = ((images - originals) / spread).square().flatten(start_dim=1).mean(dim=1)
    return errors


class _DistanceToGradient:
    """Of one image: one minus the cosine between its gradient and the observed one, and its total variation."""

    def __init__(self, network: nn.Module, total_variation: float) -> None:
        self._network = network
        self._weights = {name: value.detach() for name, value in network.named_parameters()}
        self._total_variation = total_variation
        self.of_all = vmap(self._of_one)
        self.slopes = vmap(grad(self._of_one))

    def _of_one(self, image: Tensor, observed: Tensor, label: Tensor) -> Tensor:
        made = grad(self._loss_of_weights)(self._weights, image, label)
        row = torch.cat([made[name].flatten() for name in self._weights])
        cosine: Tensor = row @ observed / (row.norm() * observed.norm()).clamp_min(_TINY)
        return 1 - cosine + self._total_variation * _total_variation(image)

    def _loss_of_weights(self, weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return _loss(functional_call(self._network, weights, (image.unsqueeze(0),)), None, label.unsqueeze(0))


def _descend(
    distance: _DistanceToGradient, start: Tensor, observed: Tensor, labels: Tensor, settings: InversionSettings
) -> tuple[Tensor, Tensor]:
    images = nn.Parameter(start)
    optimizer = torch.optim.Adam([images], lr=settings.step_size)
    cuts = [int(share * settings.iterations) for share in _STEP_CUTS]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, cuts, gamma=0.1)
    for _ in range(settings.iterations):
        images.grad = distance.slopes(images.detach(), observed, labels).sign()
        optimizer.step()
        schedule.step()
        images.data.clamp_(0, 1)
    return images.detach(), distance.of_all(images.detach(), observed, labels).detach()


def _loss(logits: Tensor, _image: Tensor | None, label: Tensor) -> Tensor:
    return functional.cross_entropy(logits, label)


def _total_variation(image: Tensor) -> Tensor:
    return image.diff(dim=1).abs().mean() + image.diff(dim=2).abs().mean()
