"""The accuracy on one image set of a network that was trained on another.

Adam 1e-3, batches of 256 unless another number is named, a fixed number of epochs. The network of the last epoch
counts: nothing is selected on the test images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images, Labels
from datalens_service.evaluation.metrics.classifiers import LARGEST_SIDE, STANDARD, ClassifierArchitecture, averaged

if TYPE_CHECKING:
    import torch

BATCH = 256
_TEST_BATCH = 256
_LEARNING_RATE = 1e-3

Observe = Callable[[int, int], None]
Targets = Labels | NDArray[np.float32]
"""Labels (n,), or soft labels (n, classes)."""


def trained(
    images: Images,
    labels: Targets,
    num_classes: int,
    *,
    epochs: int,
    seed: int,
    device: str,
    classifier: ClassifierArchitecture = STANDARD,
    batch_size: int = BATCH,
    observe: Observe | None = None,
) -> torch.nn.Module:
    """Return a classifier after its last epoch.

    Args:
        images: uint8 (n, height, width, channels), sides from 4.
        labels: int64 (n,) in [0, num_classes), or soft labels.
        epochs: Passes over the images.
        seed: Seed of initial weights, order and dropout; the global random state is left as it was.
        device: "cpu" or a CUDA device.
        batch_size: Images per step.
        observe: Called after each step with (images seen, images in all), over all epochs.
    """
    import torch

    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        pixels, targets = _on(device, images, labels)
        network = classifier.build(tuple(pixels.shape[1:]), num_classes).to(device)
        network = network.to(memory_format=torch.channels_last)
        optimizer = torch.optim.Adam(network.parameters(), _LEARNING_RATE)
        whole, seen = epochs * len(pixels), 0
        for _ in range(epochs):
            for step_images in _train_epoch(network, optimizer, pixels, targets, batch_size):
                seen += step_images
                if observe is not None:
                    observe(seen, whole)
    return network


def _on(device: str, images: Images, labels: Targets) -> tuple[torch.Tensor, torch.Tensor]:
    """Copy averaged images (still bytes) and labels to tensors on `device`."""
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


def _train_epoch(
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    images: torch.Tensor,
    labels: torch.Tensor,
    batch_size: int,
) -> Iterator[int]:
    """Pass over the images once, and yield the number of images of each step."""
    import torch

    network.train()
    for rows in torch.split(torch.randperm(len(labels)).to(labels.device), batch_size):
        loss = torch.nn.functional.cross_entropy(network(scaled(images[rows])), labels[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        yield len(rows)


def scaled(images: torch.Tensor) -> torch.Tensor:
    """Average bytes (n, height, width, channels) to numbers in [0, 1], channels first in shape and last in memory."""
    return averaged(images.permute(0, 3, 1, 2).float() / 255)


def labelled(network: torch.nn.Module, images: Images, device: str) -> Labels:
    """Return the most likely class, int64 (m,), of uint8 images (m, height, width, channels)."""
    import torch

    network.eval()
    with torch.inference_mode():
        writable = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        parts = [
            network(scaled(part.to(device))).argmax(dim=1).cpu().numpy() for part in torch.split(writable, _TEST_BATCH)
        ]
    return np.concatenate(parts)
