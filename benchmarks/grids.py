"""Sample grids: ten images of each class, one row per class.

    python -m benchmarks.grids --dataset mnist --preset auto --epsilon 1 --out docs/images/mnist-auto-epsilon-1.png

The first ten samples of each class with seed 0: nothing is picked.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.environment import dataset
from datalens_service.cli.specs import SpecOptions
from datalens_service.models.generator import Generator
from datalens_service.presets import PRESETS
from datalens_service.run import run

_COLUMNS = 10
_ENLARGED = 2


def grid(generator: Generator) -> Image.Image:
    """Classes from top to bottom."""
    schema = generator.schema
    labels = np.repeat(np.arange(schema.num_classes), _COLUMNS)
    images, _ = generator.sample(len(labels), labels=labels)
    rows = images.reshape(schema.num_classes, _COLUMNS, schema.height, schema.width, schema.channels)
    sheet = rows.transpose(0, 2, 1, 3, 4).reshape(schema.num_classes * schema.height, -1, schema.channels)
    picture = Image.fromarray(sheet[..., 0] if schema.channels == 1 else sheet)
    return picture.resize((picture.width * _ENLARGED, picture.height * _ENLARGED), Image.Resampling.NEAREST)


def main() -> None:
    """Train once and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="auto")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--generator", type=Path, help="draw from this file instead of training")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.generator is None:
        data = dataset(options.dataset)
        generator = run(SpecOptions(options.epsilon, None, preset=options.preset).spec(data.schema), data).generator
    else:
        generator = Generator.load(options.generator)
    grid(generator).save(options.out, optimize=True)


if __name__ == "__main__":
    main()
