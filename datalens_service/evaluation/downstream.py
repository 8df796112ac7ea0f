"""Classifier A: how well a small network trained on one image set labels another.

Convolution 3×3 (32) – pool 2 – dropout 0.2 – convolution 3×3 (64) – pool 2 – dropout 0.25 – dense 64 – softmax;
Adam 1e-3, batches of 256, a fixed number of epochs. The network of the last epoch counts: nothing is selected
on the test images. ReLU follows the pooling, which gives the same numbers as the reverse and costs less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from datalens_service.data.dataset import Images, Labels

if TYPE_CHECKING:
    import torch

PROTOCOL = (
    "classifier A (convolution 3×3 with 32 channels, pool 2, dropout 0.2, convolution 3×3 with 64 channels, pool 2, "
    "dropout 0.25, dense 64, softmax; Adam 1e-3, batches of 256; last epoch)"
)

_BATCH = 256
_TEST_BATCH = 1024
_LEARNING_RATE = 1e-3
# Below this side two valid convolutions would eat the image up; a border of zeros keeps its size.
_SMALLEST_UNPADDED_SIDE = 16

Observe = Callable[[int, int], None]


def accuracy(
    train_images: Images,
    train_labels: Labels,
    test_images: Images,
    test_labels: Labels,
    num_classes: int,
    *,
    epochs: int,
    seed: int,
    device: str,
    observe: Observe | None = None,
) -> float:
    """Train classifier A on one set and return its accuracy on the other.

    Args:
        train_images: uint8 (n, height, width, channels), sides from 4.
        train_labels: int64 (n,) in [0, num_classes).
        test_images: uint8 (m, height, width, channels).
        test_labels: int64 (m,).
        num_classes: Outputs of the network.
        epochs: Passes over the training set; the network after the last one is tested.
        seed: Of initial weights, order and dropout; the global random state is left as it was.
        device: "cpu" or a CUDA device.
        observe: Called after each epoch with (epochs done, epochs).

    Returns:
        Share of correctly labelled test images, in percent.
    """
    import torch

    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        torch.manual_seed(seed)
        network = _network(train_images.shape[1:], num_classes).to(device).to(memory_format=torch.channels_last)
        images, labels = _on(device, train_images, train_labels)
        optimizer = torch.optim.Adam(network.parameters(), _LEARNING_RATE)
        for epoch in range(epochs):
            _train_epoch(network, optimizer, images, labels)
            if observe is not None:
                observe(epoch + 1, epochs)
    return _percent_right(network, *_on(device, test_images, test_labels))


def _network(shape: tuple[int, ...], num_classes: int) -> torch.nn.Module:
    """Classifier A for images of `shape` (height, width, channels)."""
    from torch import nn

    height, width, channels = shape
    padding = 1 if min(height, width) < _SMALLEST_UNPADDED_SIDE else 0
    features = 64 * _side_after(height, padding) * _side_after(width, padding)
    return nn.Sequential(
        *(nn.Conv2d(channels, 32, 3, padding=padding), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2)),
        *(nn.Conv2d(32, 64, 3, padding=padding), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, num_classes)),
    )


def _side_after(side: int, padding: int) -> int:
    """Side of the feature map after two convolutions, each with its pooling."""
    for _ in range(2):
        side = (side - 2 + 2 * padding) // 2
    return side


def _on(device: str, images: Images, labels: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (still bytes) and labels as tensors on `device`."""
    import torch

    # Arrays mapped from a file may be read-only, which torch does not know.
    writable = np.require(images, requirements=["C", "W"])
    return torch.from_numpy(writable).to(device), torch.tensor(labels, device=device)


def _train_epoch(
    network: torch.nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor
) -> None:
    import torch

    network.train()
    for rows in torch.split(torch.randperm(len(labels)).to(labels.device), _BATCH):
        loss = torch.nn.functional.cross_entropy(network(_pixels(images[rows])), labels[rows])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()


def _pixels(images: torch.Tensor) -> torch.Tensor:
    """Bytes (n, height, width, channels) as numbers in [0, 1], channels first in shape and last in memory."""
    return images.permute(0, 3, 1, 2).float() / 255


def _percent_right(network: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    import torch

    network.eval()
    with torch.inference_mode():
        batches = zip(torch.split(images, _TEST_BATCH), torch.split(labels, _TEST_BATCH), strict=True)
        right = sum(int((network(_pixels(x)).argmax(dim=1) == y).sum()) for x, y in batches)
    return 100 * right / len(labels)
