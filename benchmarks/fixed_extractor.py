"""The extractor by which all FIDs of one benchmark set are measured: trained once on public images, then kept.

    python -m benchmarks.fixed_extractor --dataset mnist

writes `benchmarks/results/extractor-mnist.safetensors`. Training again gives other features and other FIDs, so rows are
comparable only under one file: they name its SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.environment import dataset
from benchmarks.kept_results import RESULTS
from datalens_service.data.dataset import Dataset

_DIGITS: Final = 16
_SEED, _EPOCHS, _BATCH = 123, 4, 256


def path_of(name: str) -> Path:
    """The file of a benchmark set."""
    return RESULTS / f"extractor-{name}.safetensors"


def fixed_extractor(name: str) -> tuple[nn.Sequential, str]:
    """The network of a benchmark set, and the beginning of its file's SHA-256.

    Args:
        name: Of the set.
    """
    content = path_of(name).read_bytes()
    network = build_network()
    network.load_state_dict({key: value.to(torch.float32) for key, value in load(content).items()})
    return network.eval(), hashlib.sha256(content).hexdigest()[:_DIGITS]


def pixels(images: NDArray[np.uint8]) -> Tensor:
    """(n, channels, height, width) in [0, 1]."""
    return torch.from_numpy(images.transpose(0, 3, 1, 2).astype(np.float32) / 255)


def build_network() -> nn.Sequential:
    """A small convolutional classifier of 28×28 grey images; its last hidden layer has 128 numbers."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def train_extractor(data: Dataset) -> nn.Sequential:
    """The network after four epochs on the training images."""
    images, labels = pixels(data.train.images), torch.from_numpy(data.train.labels)
    torch.manual_seed(_SEED)
    network = build_network()
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(_EPOCHS):
        for rows in torch.randperm(len(images)).split(_BATCH):
            loss = functional.cross_entropy(network(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


def main() -> None:
    """Train and write; half precision is what everybody then loads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), required=True)
    name = parser.parse_args().dataset
    weights = train_extractor(dataset(name)).state_dict()
    path_of(name).write_bytes(save({key: value.to(torch.float16) for key, value in weights.items()}))


if __name__ == "__main__":
    main()
