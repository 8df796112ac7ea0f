"""The standard CNN of versions up to 1.0.0, that of the published protocol: what compares with papers is judged by it.

Convolution 3×3 (32), pool 2, dropout 0.2, convolution 3×3 (64), pool 2, dropout 0.25, dense 64, softmax; Adam 1e-3, a
number of epochs.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from datalens_service.data.dataset import Dataset, Images, Labels
from datalens_service.evaluation.metrics.downstream import labelled, scaled

__all__ = ["earlier_accuracy", "labelled", "scaled", "trained"]
_BATCH = 256


def trained(images: Images, labels: Labels, num_classes: int, *, epochs: int, seed: int) -> nn.Module:
    """The network after its last epoch, for images from 16 pixels a side."""
    torch.manual_seed(seed)
    pixels, targets = torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels)
    height, width = (((side - 2) // 2 - 2) // 2 for side in images.shape[1:3])
    network = nn.Sequential(
        nn.Conv2d(images.shape[3], 32, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.2),
        nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Dropout(0.25),
        nn.Flatten(), nn.Linear(64 * height * width, 64), nn.ReLU(), nn.Linear(64, num_classes),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    network.train()
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(targets)), _BATCH):
            loss = nn.functional.cross_entropy(network(scaled(pixels[rows])), targets[rows])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
    return network


def earlier_accuracy(images: Images, labels: Labels, data: Dataset, epochs: int, seed: int) -> float:
    """Percent of real test images that are labelled rightly after so many epochs on `images`."""
    if data.test is None:
        raise SystemExit("the data set has no test split")
    network = trained(images, labels, data.schema.num_classes, epochs=epochs, seed=seed)
    return 100 * float(np.mean(labelled(network, data.test.images, "cpu") == data.test.labels))
