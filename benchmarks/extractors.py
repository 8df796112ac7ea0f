"""Does an extractor order images as people do? FID of real images, and of the same made worse step by step.

    python -m benchmarks.extractors --out benchmarks/results/extractors.json

Under random convolutions, on digits, clothes and patches of colour photographs: 1,000 real images against 1,000 others.
Widths of a blur are in parts of the side, noise in grey levels of 255.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.ndimage import gaussian_filter

from benchmarks.environment import dataset, provenance
from benchmarks.photographs import photographs
from datalens_service.data.dataset import Dataset, Images, Split
from datalens_service.evaluation.metrics.fidelity import compare
from datalens_service.evaluation.metrics.reference import Reference
from datalens_service.evaluation.metrics.reference_checks import spoiled

COUNT: Final = 1000
BLURS: Final = (0.02, 0.04, 0.08, 0.16)
NOISES: Final = (10, 25, 60, 120)


def distances(data: Dataset) -> dict[str, float]:
    """FID of each set under random convolutions."""
    images = data.train.images[:COUNT]
    rest = slice(COUNT, 3 * COUNT)
    reference = Reference(Split(data.train.images[rest], data.train.labels[rest]), "public", "training images")
    sets = {"real": images, **_worse(images), **spoiled(images)}
    with tempfile.TemporaryDirectory() as folder:
        compared = {
            name: compare(
                "random", changed, reference, data.schema.num_classes,
                most_images=COUNT, folder=Path(folder), inception_weights=None, device="cpu",
            )
            for name, changed in sets.items()
        }  # fmt: skip
    values = {name: one.synthetic.figures["fid"] for name, one in compared.items()}
    return {**values, "class averages": compared["real"].baseline.figures["fid"]}


def _worse(images: Images) -> dict[str, Images]:
    side, rng = images.shape[1], np.random.default_rng(0)
    pixels = images.astype(np.float32)
    blurred = {f"blur {width}": gaussian_filter(pixels, (0, width * side, width * side, 0)) for width in BLURS}
    noised = {f"noise {stddev}": pixels + rng.normal(0, stddev, images.shape) for stddev in NOISES}
    return {name: np.rint(values).clip(0, 255).astype(np.uint8) for name, values in (blurred | noised).items()}


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    sets = {
        "MNIST": dataset("mnist"),
        "Fashion-MNIST": dataset("fashion_mnist"),
        "photographs, 32×32": photographs(32, 3 * COUNT, 1),
        "photographs, 64×64": photographs(64, 3 * COUNT, 1),
    }
    rows: dict[str, Any] = {
        name: {which: round(value, 3) for which, value in distances(data).items()} for name, data in sets.items()
    }
    text = json.dumps({**provenance(), "images": COUNT, "fid": rows}, indent=2, ensure_ascii=False)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
