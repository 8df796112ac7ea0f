"""What an attacker sees of single records: their gradients, raw or as a method releases them in a batch of one.

The noise simulates a release that nobody makes: what is seen here goes to the owner of the records alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from datalens_service.errors import InvalidInput
from datalens_service.mechanisms.gradient_chunks import GradientChunk
from datalens_service.mechanisms.von_mises_fisher import unit_directions
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from datalens_service.mechanisms.base import Mechanism

_TINY: Final = 1e-12


def observe_gradients(
    network: nn.Module, images: Tensor, labels: Tensor, clip_norm: float, noise_multiplier: float, seed: int = 0
) -> Tensor:
    """(n, weights) contributions, clipped, with Gaussian noise on every coordinate.

    Args:
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
        raise InvalidInput("Noise is relative to the bound of gradients: name a finite one.")
    random = torch.Generator().manual_seed(seed)
    return rows + noise_multiplier * clip_norm * torch.randn(rows.shape, generator=random)


def observe_directions(network: nn.Module, images: Tensor, labels: Tensor, kappa: float) -> Tensor:
    """(n, weights) contributions with von Mises-Fisher noise."""
    gradients = PerRecordGradients(network, _loss)
    rows = torch.cat(list(gradients.chunks([images, labels]))).to(torch.float64).numpy()
    noisy = [NoiseSource().directions(unit_directions(row[None]), kappa)[0] for row in rows]
    return torch.from_numpy(np.stack(noisy)).to(torch.float32)


def observe_releases(mechanism: Mechanism[Any, Any], contributions: Iterator[Tensor]) -> Tensor:
    """(n, weights) what a mechanism would hand out of each unit by itself: clip, grid and noise are its own.

    Nothing is charged, because nothing of it leaves the owner.
    """
    noise, alone, unit = NoiseSource(), np.array([True]), torch.zeros(1, dtype=torch.int64)
    rows = []
    for gradient in itertools.chain.from_iterable(contributions):
        noisy = mechanism.noisy_sum([GradientChunk(gradient[None], unit)], alone, noise)
        rows.append(mechanism.decode(noisy))
    return torch.from_numpy(np.stack(rows)).to(torch.float32)


def _loss(logits: Tensor, _image: Tensor, label: Tensor) -> Tensor:
    return functional.cross_entropy(logits, label)
