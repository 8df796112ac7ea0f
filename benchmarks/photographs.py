"""Colour images to try methods on: patches of the two photographs that scikit-learn brings along.

    python -m benchmarks.photographs measure --side 32 --epsilon 10 --rows moments auto diffusion --grids FOLDER
    python -m benchmarks.photographs write --side 32 --out photographs.npz

`measure` trains each row and prints accuracy of the standard CNN, and FID, KID, precision and recall under the
extractors that need no download, as a report has them. `write` makes a file for `datalens train`.

`china.jpg` by danielbuechele and `flower.jpg` by vultilion, both CC BY 2.0 (flickr.com). Each class is a part of a
picture. A patch is cut out at random, between one and two times as large as it is handed out, and may be mirrored.
Training and test patches overlap, so accuracy on them is high: they show what images look like, not what is learnt.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.environment import provenance
from benchmarks.grids import real, write
from benchmarks.rows import ROWS
from datalens_service.data.dataset import Dataset, Images, Schema, Split
from datalens_service.errors import WorkerUnavailable
from datalens_service.evaluation.metrics.downstream import accuracy
from datalens_service.evaluation.metrics.fidelity import compare
from datalens_service.evaluation.metrics.reference import Reference
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.run import run

_LARGEST_CUT: Final = 2.0
_DELTA: Final = 1e-5
_EXTRACTORS: Final = ("domain", "random")
_COMPARED: Final = 1000
_TAUGHT, _EPOCHS = 12_000, 5


class Part(NamedTuple):
    """A rectangle of a photograph, in pixels."""

    photograph: str
    left: int
    top: int
    right: int
    bottom: int


PARTS: Final = {
    "temple": Part("china.jpg", 60, 40, 340, 390),
    "trees": Part("china.jpg", 340, 280, 560, 427),
    "sky": Part("china.jpg", 330, 0, 640, 230),
    "petals": Part("flower.jpg", 170, 85, 445, 355),
    "leaves": Part("flower.jpg", 0, 0, 230, 300),
}


def photographs(side: int, count: int = 12_000, tests: int = 2_000) -> Dataset:
    """Patches of side × side pixels in colour.

    Args:
        side: Up to 96.
        count: Training patches, a fifth of them of each class.
        tests: Test patches.
    """
    schema = Schema(channels=3, height=side, width=side, class_names=tuple(PARTS), num_units=count)
    rng = np.random.default_rng(0)
    return Dataset(schema, _cut(side, count, rng), _cut(side, tests, rng), partition_key=b"benchmark")


def _cut(side: int, count: int, rng: np.random.Generator) -> Split:
    parts = [_open(part) for part in PARTS.values()]
    labels = np.arange(count, dtype=np.int64) % len(parts)
    return Split(np.stack([_patch(parts[label], side, rng) for label in labels]), labels)


def _open(part: Part) -> Image.Image:
    from sklearn.datasets import load_sample_image

    return Image.fromarray(load_sample_image(part.photograph)).crop(part[1:])


def _patch(picture: Image.Image, side: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    largest = min(_LARGEST_CUT * side, *picture.size)
    size = rng.uniform(side, largest)
    left, top = (rng.uniform(0, length - size) for length in picture.size)
    patch = np.asarray(picture.resize((side, side), Image.Resampling.BOX, (left, top, left + size, top + size)))
    return patch[:, ::-1] if rng.integers(2) else patch


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row of figures for each method."""
    data = photographs(options.side)
    if options.grids:
        options.grids.mkdir(parents=True, exist_ok=True)
        real(data).save(options.grids / f"photographs{options.side}-real.png", optimize=True)
    return [_figures(row, data, options) for row in options.rows]


def _figures(row: str, data: Dataset, options: argparse.Namespace) -> dict[str, Any]:
    asked = ROWS[row].options(options.epsilon, _DELTA, 0, tuple(options.settings))
    generator = run(asked.build_spec(data.schema), data, account=UnchargedAccount()).generator
    if generator is None or data.test is None:
        raise SystemExit("photographs have test patches, and rows are generators")
    if options.grids:
        write(generator, options.grids, f"photographs{options.side}", row, options.epsilon)
    images, labels = generator.sample(_TAUGHT)
    learnt = accuracy(
        images, labels, data.test.images, data.test.labels, len(PARTS), epochs=_EPOCHS, seed=0, device="cpu"
    )  # fmt: skip
    named = {"row": row, "side": options.side, "epsilon": options.epsilon, "kind": generator.kind}
    return {**named, "accuracy": round(learnt, 1), **{kind: _fidelity(kind, images, data) for kind in _EXTRACTORS}}


def _fidelity(kind: str, images: Images, data: Dataset) -> dict[str, Any]:
    """Figures of samples, class averages and other real patches, or why there are none."""
    if data.test is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            compared = compare(
                kind, images, Reference(data.test, "public", "test patches"), len(PARTS),
                most_images=_COMPARED, folder=Path(folder), inception_weights=None, device="cpu",
            )  # fmt: skip
        except WorkerUnavailable as unknown:
            return {"unknown": str(unknown)}
    sets = {"samples": compared.synthetic, "averages": compared.baseline, "real": compared.upper_bound}
    return {name: {key: round(value, 3) for key, value in one.figures.items()} for name, one in sets.items()}


def main() -> None:
    """Measure rows, or write patches to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measured, written = commands.add_parser("measure"), commands.add_parser("write")
    for command in (measured, written):
        command.add_argument("--side", type=int, default=32)
        command.add_argument("--out", type=Path)
    measured.add_argument("--epsilon", type=float, default=10.0)
    measured.add_argument("--rows", nargs="+", choices=list(ROWS), default=["moments", "auto", "diffusion"])
    measured.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    measured.add_argument("--grids", type=Path, help="folder for pictures")
    options = parser.parse_args()
    if options.command == "measure":
        text = json.dumps({**provenance(), "rows": measure(options)}, indent=2)
        print(text)
        if options.out:
            options.out.write_text(text + "\n")
        return
    data = photographs(options.side)
    if data.test is None or options.out is None:
        raise SystemExit("write needs --out")
    arrays = {"images": data.train.images, "labels": data.train.labels}
    np.savez(options.out, **arrays, test_images=data.test.images, test_labels=data.test.labels)


if __name__ == "__main__":
    main()
