"""Fetch public sets for benchmarks and tests: `python -m benchmarks.data mnist fashion_mnist cifar10`.

torchvision downloads each set and checks it; what it keeps lies in `downloads` beside the NPZ, or in the folder that
`--downloads` names, where files that are there already are taken. Writes NAME.npz into build/data, or into the folder
that DATALENS_TEST_DATA names, where benchmarks and tests look for it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from torchvision import datasets

from benchmarks.environment import DATA, data_path

SETS: Final[dict[str, Any]] = {
    "mnist": datasets.MNIST,
    "fashion_mnist": datasets.FashionMNIST,
    "cifar10": datasets.CIFAR10,
}
_NAMED: Final = ("cifar10",)
"""Sets whose benchmarks choose classes by name."""


def fetch(name: str, downloads: Path) -> Path:
    """Write a set, unless it is there; the file.

    Raises:
        OSError, RuntimeError: It cannot be downloaded, is not what torchvision knows, or cannot be written.
    """
    try:
        return data_path(name)
    except FileNotFoundError:
        arrays = read(name, downloads)
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA, prefix=".writing-") as folder:
        written = Path(folder, "set.npz")
        np.savez_compressed(written, **arrays)
        return written.replace(DATA / f"{name}.npz")


def read(name: str, downloads: Path) -> dict[str, Any]:
    """Both splits: images (n, height, width) grey or (n, height, width, 3) RGB, and labels (n,), all uint8."""
    arrays = {}
    for split, train in (("train", True), ("test", False)):
        found = SETS[name](str(downloads), train=train, download=True)
        arrays[f"{split}_images"] = np.asarray(found.data)
        arrays[f"{split}_labels"] = np.asarray(found.targets, dtype=np.uint8)
        if name in _NAMED:
            arrays["class_names"] = np.array(found.classes)
    return arrays


def main() -> int:
    """Fetch what is asked for; 1 if something could not be had."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", choices=SETS)
    parser.add_argument("--downloads", type=Path, default=DATA / "downloads", metavar="FOLDER")
    options = parser.parse_args()
    status = 0
    for name in options.sets:
        try:
            print(fetch(name, options.downloads))
        except (OSError, RuntimeError) as error:
            print(f"{name} could not be fetched: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
