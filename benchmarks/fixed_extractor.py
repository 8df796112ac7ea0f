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

import torch
from safetensors.torch import load, save
from torch import nn

from benchmarks.environment import ROOT, dataset
from benchmarks.image_trials.metrics import build_network, train_extractor

FOLDER: Final = ROOT / "benchmarks" / "results"
_DIGITS: Final = 16


def path_of(name: str) -> Path:
    """The file of a benchmark set."""
    return FOLDER / f"extractor-{name}.safetensors"


def fixed_extractor(name: str) -> tuple[nn.Sequential, str]:
    """The network of a benchmark set, and the beginning of its file's SHA-256.

    Args:
        name: Of the set.
    """
    content = path_of(name).read_bytes()
    network = build_network()
    network.load_state_dict({key: value.to(torch.float32) for key, value in load(content).items()})
    return network.eval(), hashlib.sha256(content).hexdigest()[:_DIGITS]


def main() -> None:
    """Train and write; half precision is what everybody then loads."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), required=True)
    name = parser.parse_args().dataset
    weights = train_extractor(dataset(name)).state_dict()
    path_of(name).write_bytes(save({key: value.to(torch.float16) for key, value in weights.items()}))


if __name__ == "__main__":
    main()
