"""Features of a public encoder in the place of images: `python -m benchmarks.features cifar10 --draw 10000`.

Writes SET_features.npz beside the set, of so many training images and of 5,000 test images, as cells of the panel are
drawn. An image of 32×40 grey pixels holds the 1,280 numbers of `imagenet-lite0`,
scaled to length 1 and then, by a public constant, to the upper half of a byte: `linear` on them is a linear layer on
the encoder, and everything that takes images takes them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.environment import DATA, require_test_split
from benchmarks.panel import Cell, draw
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.encoders.imagenet_lite0 import ImagenetLite0

HEIGHT, WIDTH = 32, 40
_LARGEST: Final = 0.25
"""Of a number of a vector of length 1; larger ones are cut."""
_ROWS: Final = 1000


def features_as_images(images: Images, schema: Schema) -> Images:
    """uint8 (n, 32, 40, 1) of images (n, height, width, channels), each a function of its own image."""
    network = ImagenetLite0().load(schema).eval()
    parts = [network.encode(images[start : start + _ROWS]) for start in range(0, len(images), _ROWS)]
    return as_bytes(np.concatenate(parts)).reshape(-1, HEIGHT, WIDTH, 1)


def as_bytes(features: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Rows, scaled to length 1, as bytes from 128, for 0, to 255."""
    lengths = np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    return np.rint(127.5 + 127.5 * np.clip(features / lengths / _LARGEST, 0, 1)).astype(np.uint8)


def write(name: str, records: int) -> Path:
    """Both splits, as an upload holds them."""
    data = draw(Cell(name, records, epsilon=1.0), seed=0)
    arrays: dict[str, Any] = {"class_names": np.array(data.schema.class_names)}
    for split, held in (("train", data.train), ("test", require_test_split(data))):
        # Some sets are sorted by class, and benchmarks look at first records.
        order = np.random.default_rng(0).permutation(len(held.labels))
        arrays[f"{split}_images"] = features_as_images(held.images[order], data.schema)[..., 0]
        arrays[f"{split}_labels"] = held.labels[order].astype(np.uint8)
    with tempfile.TemporaryDirectory(dir=DATA, prefix=".writing-") as folder:
        written = Path(folder, "set.npz")
        np.savez_compressed(written, **arrays)
        return written.replace(DATA / f"{name}_features.npz")


def main() -> None:
    parser = argparse.ArgumentParser(description="Features of a public encoder in the place of images.")
    parser.add_argument("dataset", choices=["cifar10"])
    parser.add_argument("--draw", type=int, default=10_000)
    options = parser.parse_args()
    with torch.inference_mode():
        print(write(options.dataset, options.draw))


if __name__ == "__main__":
    main()
