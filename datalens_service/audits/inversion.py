"""Gradient inversion: the search for images that would have produced the gradients an attacker sees.

Geiping et al. 2020, "Inverting Gradients". The attacker knows network, weights and label of a record, and sees
its gradient, raw or as a method releases it in a batch of one. The noise simulates a release that nobody makes: the
results go to the owner of the records alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from datalens_service.audits.inversion_figures import InversionSettings
from datalens_service.mechanisms.gradient_sum import GradientChunk
from datalens_service.methods.descent.unit_gradients import class_loss
from datalens_service.models.per_record import PerRecordGradients
from datalens_service.privacy.randomness import NoiseSource

if TYPE_CHECKING:
    from datalens_service.mechanisms.base import Mechanism


_STEP_SIZE: Final = 0.1
"""In units of the pixel range; it drops to a tenth after each of these parts of the iterations."""
_STEP_CUTS: Final = (3 / 8, 5 / 8, 7 / 8)
_TOTAL_VARIATION: Final = 1e-3
"""Weight of the total variation."""
_TINY: Final = 1e-12


def invert_gradients(
    network: nn.Module,
    observed: Tensor,
    labels: Tensor,
    shape: Sequence[int],
    settings: InversionSettings,
    on_iteration: Callable[[], None] = lambda: None,
) -> Tensor:
    """Search images (n, channels, height, width) in [0, 1] whose gradients point in the direction of the observed ones.

    The network needs a second derivative: with ReLU it vanishes almost everywhere and the attack is weaker.

    Args:
        network: The network with the weights at which the gradients were taken.
        observed: (n, weights) contributions.
        on_iteration: Called before each; may raise to end the search.
    """
    random = torch.Generator().manual_seed(settings.seed)
    distance = _DistanceToGradient(network)
    best = torch.full((len(labels),), math.inf)
    result = torch.zeros((len(labels), *shape))
    for _ in range(settings.restarts):
        start = torch.rand((len(labels), *shape), generator=random)
        images, distances = _descend(distance, start, observed, labels, settings, on_iteration)
        closer = distances < best
        best, result = torch.where(closer, distances, best), torch.where(closer[:, None, None, None], images, result)
    return result


def squared_errors(images: Tensor, originals: Tensor, spread: float) -> Tensor:
    """Return the mean squared error of each image (n,), in pixels divided by their public standard deviation."""
    errors: Tensor = ((images - originals) / spread).square().flatten(start_dim=1).mean(dim=1)
    return errors


class _DistanceToGradient:
    """For one image: one minus the cosine between its gradient and the observed one, and its total variation."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._weights = {name: value.detach() for name, value in network.named_parameters()}
        self.of_all = vmap(self._of_one)
        self.slopes = vmap(grad(self._of_one))

    def _of_one(self, image: Tensor, observed: Tensor, label: Tensor) -> Tensor:
        made = grad(self._loss_of_weights)(self._weights, image, label)
        row = torch.cat([made[name].flatten() for name in self._weights])
        cosine: Tensor = row @ observed / (row.norm() * observed.norm()).clamp_min(_TINY)
        return 1 - cosine + _TOTAL_VARIATION * (image.diff(dim=1).abs().mean() + image.diff(dim=2).abs().mean())

    def _loss_of_weights(self, weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(self._network, weights, (image.unsqueeze(0),))
        return functional.cross_entropy(logits, label.unsqueeze(0))


def _descend(
    distance: _DistanceToGradient,
    start: Tensor,
    observed: Tensor,
    labels: Tensor,
    settings: InversionSettings,
    on_iteration: Callable[[], None],
) -> tuple[Tensor, Tensor]:
    images = nn.Parameter(start)
    optimizer = torch.optim.Adam([images], lr=_STEP_SIZE)
    cuts = [int(share * settings.iterations) for share in _STEP_CUTS]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, cuts, gamma=0.1)
    for _ in range(settings.iterations):
        on_iteration()
        images.grad = distance.slopes(images.detach(), observed, labels).sign()
        optimizer.step()
        schedule.step()
        images.data.clamp_(0, 1)
    return images.detach(), distance.of_all(images.detach(), observed, labels).detach()


def observe_gradients(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """Compute gradients of single records (n, weights), without clipping and noise."""
    return torch.cat(list(PerRecordGradients(network, class_loss).chunks([images, labels])))


def observe_releases(mechanism: Mechanism[Any, Any], contributions: Iterator[Tensor]) -> Tensor:
    """Simulate what a mechanism would release of each unit by itself, (n, weights), with its own clip, grid and noise.

    Nothing is charged and nothing is kept: only the errors of the attack are, and the owner alone sees them.
    """
    noise, alone, unit = NoiseSource(), np.array([True]), torch.zeros(1, dtype=torch.int64)
    rows = []
    for gradient in itertools.chain.from_iterable(contributions):
        noisy = mechanism.noisy_sum([GradientChunk(gradient[None], unit)], alone, noise)
        rows.append(mechanism.decode(noisy))
    return torch.from_numpy(np.stack(rows)).to(torch.float32)
