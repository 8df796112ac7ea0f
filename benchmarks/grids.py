"""Sample grids: ten images of each class, one line per class.

    python -m benchmarks.grids --dataset mnist --epsilon 1 --rows auto moments scratch --out docs/images/samples
    python -m benchmarks.grids --dataset mnist --real --out docs/images/samples

The first ten samples of each class with seed 0: nothing is picked. With `--real`, the first ten training images.
Rows are those of `benchmarks.rows`.
`python -m benchmarks.utility --grids FOLDER` writes the same beside its figures.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.environment import dataset
from benchmarks.rows import ROWS
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.training import run

_COLUMNS = 10
_DELTA = 1e-5


def grid(generator: Generator) -> Image.Image:
    """Classes from top to bottom."""
    labels = np.repeat(np.arange(generator.schema.num_classes), _COLUMNS)
    images, _ = generator.sample(len(labels), labels=labels)
    return sheet_of(images, generator.schema)


def real(data: Dataset) -> Image.Image:
    """The same with records; for public datasets only."""
    images, labels = data.train.images, data.train.labels
    first = [np.flatnonzero(labels == label)[:_COLUMNS] for label in range(data.schema.num_classes)]
    return sheet_of(images[np.concatenate(first)], data.schema)


def sheet_of(images: NDArray[np.uint8], schema: Schema) -> Image.Image:
    """Images in order of their classes, as one picture."""
    rows = images.reshape(schema.num_classes, _COLUMNS, schema.height, schema.width, schema.channels)
    sheet = rows.transpose(0, 2, 1, 3, 4).reshape(schema.num_classes * schema.height, -1, schema.channels)
    return Image.fromarray(sheet[..., 0]) if schema.channels == 1 else Image.fromarray(sheet)


def write(generator: Generator, folder: Path, dataset: str, row: str, epsilon: float) -> None:
    """Into `folder`, under the name by which docs/utility.md finds it."""
    folder.mkdir(parents=True, exist_ok=True)
    grid(generator).save(folder / f"{dataset}-{row}-{epsilon:g}.png", optimize=True)


def main() -> None:
    """Train each row once and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=["auto"])
    parser.add_argument("--real", action="store_true", help="draw training images, train nothing")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--set", dest="settings", action="append", default=[], help="as of datalens train")
    parser.add_argument("--out", type=Path, required=True, help="folder")
    options = parser.parse_args()
    data = dataset(options.dataset)
    if options.real:
        real(data).save(options.out / f"{options.dataset}-real.png", optimize=True)
        return
    for name in options.rows:
        spec = ROWS[name].options(options.epsilon, _DELTA, 0, tuple(options.settings)).build_spec(data.schema)
        generator = run(spec, data, account=UnchargedAccount()).generator
        write(generator, options.out, options.dataset, name, options.epsilon)


if __name__ == "__main__":
    main()
