"""Accuracy of a network that learns from one image set and labels another, trained to convergence in bounded work.

Training takes as many steps whatever the number of images. Each step sees every class equally often, and images that
are shifted by up to a tenth of a side. The learning rate of AdamW rises over the first tenth of the steps and falls as
a cosine. The network of the last step counts: nothing is selected on the test images.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Labels
from datalens_service.evaluation.metrics.classifiers import LARGEST_SIDE, averaged, judge_network
from datalens_service.evaluation.settings import BATCH, STEPS
from datalens_service.privacy.randomness import TrainingRandomness

if TYPE_CHECKING:
    import torch

_TEST_BATCH: Final = 256
LEARNING_RATE: Final = 3e-3
_WEIGHT_DECAY: Final = 0.01
_SMOOTHED: Final = 0.1
_RISING: Final = 0.1
_SHIFT: Final = 0.1
"""The largest shift, as a share of the shorter side."""

Observe = Callable[[int, int], None]
Targets = Labels | NDArray[np.float32]
"""Labels (n,), or soft labels (n, classes)."""


def train_network(
    images: Images,
    labels: Targets,
    num_classes: int,
    *,
    seed: int,
    device: str,
    steps: int = STEPS,
    batch_size: int = BATCH,
    learning_rate: float = LEARNING_RATE,
    mirrored: bool = False,
    observe: Observe | None = None,
) -> torch.nn.Module:
    """Train the standard CNN and return it after its last step.

    Args:
        images: uint8 (n, height, width, channels), sides from 4.
        labels: int64 (n,) in [0, num_classes), or soft labels.
        seed: Seed of initial weights, order and shifts; the global random state is left as it was.
        device: "cpu" or a CUDA device.
        batch_size: Images per step.
        learning_rate: Largest rate of AdamW.
        mirrored: True to exchange left and right at random, for classes that do not change by it.
        observe: Called after each step with (steps done, steps in all).
    """
    import torch

    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        pixels, targets = tensors_on(device, images, labels)
        network = judge_network(pixels.shape[3], num_classes).to(device).to(memory_format=torch.channels_last)
        optimizer = torch.optim.AdamW(network.parameters(), learning_rate, weight_decay=_WEIGHT_DECAY)
        rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: _rate(done, steps))
        order = torch.from_numpy(balanced_order(labels, steps * batch_size, seed)).to(device)
        network.train()
        for done, rows in enumerate(torch.split(order, batch_size), start=1):
            shown = _moved(pixels[rows], mirrored=mirrored)
            loss = torch.nn.functional.cross_entropy(network(scaled(shown)), targets[rows], label_smoothing=_SMOOTHED)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            rate.step()
            if observe is not None:
                observe(done, steps)
    return network


def _rate(done: int, steps: int) -> float:
    """Share of the learning rate after so many steps."""
    return min(1.0, (done + 1) / (_RISING * steps + 1)) * (1 + math.cos(math.pi * done / steps)) / 2


def balanced_order(labels: Targets, count: int, seed: int) -> NDArray[np.int64]:
    """Rows (count,), of each class equally often, and of its images each as often as the others.

    Args:
        labels: Labels, or soft labels, of which the likeliest class counts.
        count: Number of rows.
        seed: Seed of the order.
    """
    rng = TrainingRandomness(seed).numpy("evaluation.order")
    given = labels if labels.ndim == 1 else labels.argmax(axis=1)
    members = [np.flatnonzero(given == label) for label in np.unique(given)]
    each = -(-count // len(members))
    columns = [np.concatenate([rng.permutation(rows) for _ in range(-(-each // len(rows)))])[:each] for rows in members]
    return rng.permuted(np.stack(columns, axis=1), axis=1).ravel()[:count]


def _moved(images: torch.Tensor, *, mirrored: bool) -> torch.Tensor:
    """Each of the images (n, height, width, channels) shifted for itself; the border is repeated."""
    import torch

    count, height, width = images.shape[:3]
    reach = round(_SHIFT * min(height, width))
    down, right = torch.randint(-reach, reach + 1, (2, count, 1), device=images.device)
    rows = (torch.arange(height, device=images.device) + down).clamp_(0, height - 1)
    columns = (torch.arange(width, device=images.device) + right).clamp_(0, width - 1)
    if mirrored:
        turned = torch.rand(count, 1, device=images.device) < 0.5
        columns = torch.where(turned, width - 1 - columns, columns)
    return images[torch.arange(count, device=images.device)[:, None, None], rows[:, :, None], columns[:, None, :]]


def tensors_on(device: str, images: Images, labels: Targets) -> tuple[torch.Tensor, torch.Tensor]:
    """Averaged images (still bytes) and labels as tensors on `device`."""
    import torch

    # Arrays mapped from a file may be read-only, which torch does not know.
    writable = torch.from_numpy(np.require(images, requirements=["C", "W"]))
    if max(images.shape[1:3]) > LARGEST_SIDE:
        height, width = (min(side, LARGEST_SIDE) for side in images.shape[1:3])
        # Filled in place: what is kept in between would keep the memory of the floats, too.
        smaller = torch.empty((len(images), height, width, images.shape[3]), dtype=torch.uint8)
        for rows, part in zip(torch.split(smaller, BATCH), torch.split(writable, BATCH), strict=True):
            rows.copy_(scaled(part).mul_(255).round_().permute(0, 2, 3, 1))
        writable = smaller
    return writable.to(device), torch.tensor(labels, device=device)


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Average bytes (n, height, width, channels) to numbers in [0, 1], channels first in shape and last in memory."""
    return averaged(images.permute(0, 3, 1, 2).float() / 255)


def label_images(network: torch.nn.Module, images: Images, device: str) -> Labels:
    """Return the most likely class, int64 (m,), of uint8 images (m, height, width, channels)."""
    import torch

    network.eval()
    with torch.inference_mode():
        writable = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        parts = [
            network(scaled(part.to(device))).argmax(dim=1).cpu().numpy() for part in torch.split(writable, _TEST_BATCH)
        ]
    return np.concatenate(parts)
