"""What an attacker sees of single records: their gradients, raw or as a method releases them in a batch of one.

The noise simulates a release that nobody makes: what is seen here goes to the owner of the records alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from datalens_service.mechanisms.gradient_sum import GradientChunk
from datalens_service.methods.descent.unit_gradients import class_loss
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from datalens_service.mechanisms.base import Mechanism


def observe_gradients(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """(n, weights) gradients of single records as they are, without clipping and noise."""
    return torch.cat(list(PerRecordGradients(network, class_loss).chunks([images, labels])))


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
