"""The panel: what an owner gets from `auto`, on sets of many sizes, kinds and budgets, beside what is simpler.

    python -m benchmarks.panel --cell mnist-2000-1 >> benchmarks/results/panel.jsonl
    python -m benchmarks.panel --cell smiles64-5000-5 --public-data faces_pool64 --images 4000
    python -m benchmarks.panel --cell smiles64-5000-5 --public-data faces_pool64 --grid docs/images/samples
    python -m benchmarks.panel --cell mnist-2000-1 --looks >> benchmarks/results/looks.jsonl
    python -m benchmarks.panel --check
    python -m benchmarks.panel --list

A cell is DATASET-RECORDS-EPSILON (δ = 10⁻⁵). Records are drawn by the seed. Accuracy is that of the standard CNN which
learned from released images alone, on real test images; last step, mean over seeds. `…_balanced` is the mean over
classes, `discriminant` that of the linear discriminant of the same images, `judge` which standard CNN it was. Images
to look at are measured and, as `teach_…`, those of the purpose `teach`. `--grid` measures nothing: it
draws the first ten images of each class of seed 0. `--looks` compares images of seed 0 with real test images by
features of imagenet-lite0, which has seen none of them. `--check` says of each kept cell whether `auto` teaches at
most a point worse than the best baseline.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.environment import PARTITION_KEY, provenance, public_set, require_test_split
from benchmarks.grids import grid
from benchmarks.kept_results import print_result, read_results
from benchmarks.metrics import frechet_distance, precision_recall
from datalens_service.data.dataset import Dataset, Images, Split, Upload
from datalens_service.data.digits import digits
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.baselines import class_average_score
from datalens_service.evaluation.metrics.discriminant import label_by_pixels
from datalens_service.evaluation.metrics.outcome import Score
from datalens_service.methods import AnyMethod
from datalens_service.models.encoders import ImagenetLite0
from datalens_service.models.generators.generator import Generator
from datalens_service.planning.presets import build_baseline, preset
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

DELTA: Final = 1e-5
_TEST_IMAGES: Final = 5_000
_FID_SCALE: Final = 1000
"""Features are about 1 long."""
_SMALL: Final = 10_000
_WORSE: Final = 1.0
_GREY: Final = ((500, 2_000, 10_000, 60_000), (1, 10))
_SIZES: Final = {
    "mnist": _GREY,
    "fashion_mnist": _GREY,
    "cifar10": ((5_000, 50_000), (1, 5, 10)),
    "smiles64": ((2_000, 5_000, 11_000), (1, 5)),
    "digits": ((1_438,), (1, 5)),
    "bccd": ((3_907,), (1, 5)),
    "signs": ((1_651,), (1, 5)),
}


class Cell(NamedTuple):
    """A set, so many of its records, and a budget."""

    dataset: str
    records: int
    epsilon: float

    @property
    def name(self) -> str:
        """As `--cell` takes it."""
        return f"{self.dataset}-{self.records}-{self.epsilon:g}"

    @property
    def seeds(self) -> range:
        """Three where they are cheap, and of photographs, whose judge differs by points from seed to seed."""
        return range(3 if self.records <= _SMALL or self.dataset == "cifar10" else 1)


CELLS: Final = {
    cell.name: cell
    for name, (sizes, budgets) in _SIZES.items()
    for cell in (Cell(name, size, budget) for size in sizes for budget in budgets)
}


class Taught(NamedTuple):
    """What the standard CNN and the linear discriminant learned from the same images."""

    network: Score
    discriminant: Score


def measure(cell: Cell, pool: str | None, images: int, seeds: range) -> dict[str, Any]:
    """A line of the table: `auto`, the baselines and the real images on the same records."""
    draws = [draw(cell, seed) for seed in seeds]
    schema, public = draws[0].schema, read_pool(pool)
    auto = preset("auto", schema, cell.epsilon)
    teach = preset("auto", schema, cell.epsilon, "teach", pool=public is not None)
    began = time.perf_counter()
    looked = [released(auto, cell, data, seed, images, public) for seed, data in enumerate(draws)]
    seconds = (time.perf_counter() - began) / len(draws)
    taught = (
        looked
        if teach == auto
        else [released(teach, cell, data, seed, images, public) for seed, data in enumerate(draws)]
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    simple = [released(build_baseline(schema), cell, data, seed, images) for seed, data in enumerate(draws)]
    budget = {"epsilon": cell.epsilon, "delta": DELTA}
    averages = [
        class_average_score(data.train, require_test_split(data), schema, seed=seed, **budget)
        for seed, data in enumerate(draws)
    ]
    real = [judged(data.train.images, data.train.labels, data, seed) for seed, data in enumerate(draws)]
    labels = require_test_split(draws[0]).labels
    return {
        "cell": cell.name,
        "judge": 2,
        "method": auto.name,
        "public_data": pool,
        **describe("", [one.network for one in looked]),
        **describe("discriminant", [one.discriminant for one in looked]),
        "teach_method": teach.name,
        **describe("teach", [one.network for one in taught]),
        **describe("teach_discriminant", [one.discriminant for one in taught]),
        **describe("class_averages", averages),
        **describe("moments", [one.network for one in simple]),
        "majority": round(100 * float(np.bincount(labels).max() / len(labels)), 1),
        **describe("real", real),
        "seconds": round(seconds, 1),
        "peak_mib": round(peak / 1024),
        "synthetic_images": images,
        "seeds": len(seeds),
    }


def describe(name: str, scores: Sequence[Score]) -> dict[str, Any]:
    """Means and single figures; those of images to look at and to learn from end in `accuracy`."""
    of_images = name in ("", "teach")
    start = f"{name}_" if name else ""
    return {
        f"{start}accuracy" if of_images else name: mean([score.accuracy for score in scores]),
        f"{start}balanced": mean([score.balanced for score in scores]),
        f"{start}accuracies": [round(score.accuracy, 1) for score in scores],
    }


def draw(cell: Cell, seed: int) -> Dataset:
    """So many records of the set, and up to 5,000 test images."""
    upload = digits() if cell.dataset == "digits" else public_set(cell.dataset)
    schema, train, test = upload.schema, upload.train, require_test_split(upload)
    rows = np.sort(np.random.default_rng(seed).permutation(len(train.labels))[: cell.records])
    records = Split(train.images[rows], train.labels[rows])
    judges = np.sort(np.random.default_rng(0).permutation(len(test.labels))[:_TEST_IMAGES])
    real = Split(test.images[judges], test.labels[judges])
    return Dataset(schema.model_copy(update={"num_units": len(rows)}), records, real, PARTITION_KEY)


def read_pool(name: str | None) -> Upload | None:
    """Public images beside the set."""
    return None if name is None else public_set(name)


def released(
    method: AnyMethod, cell: Cell, data: Dataset, seed: int, images: int, public: Upload | None = None
) -> Taught:
    """Of what saw only what a job of `method` released."""
    samples, labels = trained(method, cell, data, seed, public).draw_training_set(images, seed=seed)
    test = require_test_split(data)
    linear = label_by_pixels(samples, labels, test.images, data.schema.num_classes)
    return Taught(judged(samples, labels, data, seed), Score.from_labels(linear, test.labels))


def trained(method: AnyMethod, cell: Cell, data: Dataset, seed: int, public: Upload | None = None) -> Generator:
    """What a job of `method` releases."""
    spec = TrainingSpec(method=method, epsilon=cell.epsilon, delta=DELTA, seed=seed)
    return run(spec, data, account=UnchargedAccount(), public=public).generator


def compare_looks(cell: Cell) -> dict[str, Any]:
    """FID, precision and recall of `auto`, of the baseline and of other real images against half of the test images.

    Of a Gaussian in colour, `edges` and `plain` are images of the same release with edges and without.
    """
    data = draw(cell, 0)
    images = require_test_split(data).images
    encoder, half = ImagenetLite0().load(data.schema), len(images) // 2
    real = encoder.encode(images[:half])
    auto, simple = preset("auto", data.schema, cell.epsilon), build_baseline(data.schema)
    generator = trained(auto, cell, data, 0)
    drawn = {
        "auto": generator.sample(half, seed=0)[0],
        "moments": trained(simple, cell, data, 0).sample(half, seed=0)[0],
        "real": images[half:],
    }
    if generator.kind == "gaussian" and data.schema.channels > 1:
        plain = generator.to_learn_from()
        sharp = replace(plain, settings={**plain.settings, "edges": True})
        drawn |= {"plain": plain.sample(half, seed=0)[0], "edges": sharp.sample(half, seed=0)[0]}
    found: dict[str, Any] = {"cell": cell.name, "method": auto.name}
    for name, shown in drawn.items():
        features = encoder.encode(shown)
        precision, recall = precision_recall(features, real)
        fid = round(_FID_SCALE * frechet_distance(features, real), 1)
        found |= {f"{name}_fid": fid, f"{name}_precision": precision, f"{name}_recall": recall}
    return found


def show(cell: Cell, pool: str | None, folder: Path) -> None:
    """A picture of what `auto` releases of the cell, with a pool or without one."""
    data = draw(cell, 0)
    generator = trained(preset("auto", data.schema, cell.epsilon), cell, data, 0, read_pool(pool))
    name = cell.name if pool is None else f"{cell.name}-{Path(pool).stem}"
    folder.mkdir(parents=True, exist_ok=True)
    grid(generator).save(folder / f"{name}.png", optimize=True)


def judged(images: Images, labels: downstream.Targets, data: Dataset, seed: int) -> Score:
    """Of the standard CNN after training on `images`."""
    test = require_test_split(data)
    network = downstream.train_network(images, labels, data.schema.num_classes, seed=seed, device="cpu")
    return Score.from_labels(downstream.label_images(network, test.images, "cpu"), test.labels)


def mean(values: list[float]) -> float:
    """In percent, with one digit."""
    return round(statistics.mean(values), 1)


def check() -> list[str]:
    """Kept cells in which `auto`, for the purpose `teach`, is more than a point below the best baseline."""
    latest = {(line["cell"], line.get("public_data")): line for line in read_results("panel")}
    return [
        f"{name}: {line['method']} {reached(line)}, class averages {averages}, moments {moments}"
        for (name, _), line in latest.items()
        for averages, moments in [[line.get(f"{one}_balanced", line[one]) for one in ("class_averages", "moments")]]
        if reached(line) < max(averages, moments) - _WORSE
    ]


def reached(line: dict[str, Any]) -> float:
    """Accuracy of images that are made to learn from, over classes as soon as baselines are; earlier lines have those
    to look at alone."""
    known = ("teach_balanced",) if "class_averages_balanced" in line else ()
    accuracy: float = next(line[name] for name in (*known, "teach_accuracy", "accuracy") if name in line)
    return accuracy


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--cell", choices=CELLS)
    what.add_argument("--check", action="store_true")
    what.add_argument("--list", action="store_true", help="all cells")
    parser.add_argument("--grid", type=Path, help="folder of a picture")
    parser.add_argument("--looks", action="store_true", help="compare images instead of teaching with them")
    parser.add_argument("--public-data", help="file of public images beside the set")
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, help="fewer than the cell has")
    options = parser.parse_args()
    if options.list:
        sys.stdout.write("\n".join(CELLS) + "\n")
    elif options.grid is not None:
        show(CELLS[options.cell], options.public_data, options.grid)
    elif options.check:
        worse = check()
        sys.stdout.write("\n".join(worse) + "\n" if worse else "auto is nowhere below its baselines\n")
        raise SystemExit(bool(worse))
    elif options.looks:
        print_result({**provenance(), **compare_looks(CELLS[options.cell])})
    else:
        cell = CELLS[options.cell]
        seeds = cell.seeds[: options.seeds]
        print_result({**provenance(), **measure(cell, options.public_data, options.images, seeds)})


if __name__ == "__main__":
    main()
