"""The panel: what an owner gets from `auto`, on sets of many sizes, kinds and budgets, beside what is simpler.

    python -m benchmarks.panel --cell mnist-2000-1 >> benchmarks/results/panel.jsonl
    python -m benchmarks.panel --cell smiles64-5000-5 --public-data faces_pool64 --images 4000 --epochs 15
    python -m benchmarks.panel --cell smiles64-5000-5 --public-data faces_pool64 --grid docs/images/samples
    python -m benchmarks.panel --cell mnist-2000-1 --looks >> benchmarks/results/looks.jsonl
    python -m benchmarks.panel --check
    python -m benchmarks.panel --list

A cell is DATASET-RECORDS-EPSILON (δ = 10⁻⁵). Records are drawn by the seed. Accuracy is that of the standard CNN which
learned from released images alone, on real test images; last epoch, mean over seeds. Balanced accuracy is the mean over
classes. Images to look at are measured and, as `teach_…`, those of the purpose `teach`. `--grid` measures nothing: it
draws the first ten images of each class of seed 0. `--looks` compares images of seed 0 with real test images by
features of imagenet-lite0, which has seen none of them. `--check` says of each kept cell whether `auto` teaches at
most a point worse than the better baseline, and whether images and class averages lie where plans expect them.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.environment import PARTITION_KEY, SCHEMAS, provenance, public_set
from benchmarks.grids import grid
from benchmarks.kept_results import print_result, read_results
from benchmarks.metrics import frechet_distance, precision_recall
from datalens_service.data.dataset import Dataset, Images, Labels, Schema, Split, Upload
from datalens_service.data.digits import digits
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.baselines import class_average_accuracy
from datalens_service.methods import AnyMethod
from datalens_service.models.encoders import ImagenetLite0
from datalens_service.models.generators.generator import Generator
from datalens_service.planning.expectations import expect
from datalens_service.planning.presets import Purpose, build_baseline, preset
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

DELTA: Final = 1e-5
LOOK: Final = "look"
TEACH: Final = "teach"
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


class Score(NamedTuple):
    """Percent of test images labelled rightly, and the mean of that over classes."""

    accuracy: float
    balanced: float


def measure(cell: Cell, pool: str | None, images: int, epochs: int) -> dict[str, Any]:
    """A line of the table: `auto`, the baselines and the upper bound on the same records."""
    draws = [draw(cell, seed) for seed in cell.seeds]
    schema = draws[0].schema
    auto, public = preset("auto", schema, cell.epsilon), read_pool(pool)
    began = time.perf_counter()
    scores = [
        released(auto, cell, data, seed, images, epochs, public) for seed, data in zip(cell.seeds, draws, strict=True)
    ]
    seconds = (time.perf_counter() - began) / len(scores)
    teach = preset("auto", schema, cell.epsilon, "teach", pool=public is not None)
    taught = [
        released(teach, cell, data, seed, images, epochs, public) for seed, data in zip(cell.seeds, draws, strict=True)
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    passes = max(epochs, epochs * images // cell.records)
    simple = build_baseline(schema)
    baseline = [
        released(simple, cell, data, seed, images, epochs) for seed, data in zip(cell.seeds, draws, strict=True)
    ]
    ceiling = judged(draws[0].train.images, draws[0].train.labels, draws[0], passes, 0)
    return {
        "cell": cell.name,
        "method": auto.name,
        "public_data": pool,
        "accuracy": mean([score.accuracy for score in scores]),
        "balanced": mean([score.balanced for score in scores]),
        "accuracies": [round(score.accuracy, 1) for score in scores],
        "teach_method": teach.name,
        "teach_accuracy": mean([score.accuracy for score in taught]),
        "teach_balanced": mean([score.balanced for score in taught]),
        "teach_accuracies": [round(score.accuracy, 1) for score in taught],
        "class_averages": mean([averages(cell, data, seed) for seed, data in zip(cell.seeds, draws, strict=True)]),
        "moments": mean([score.accuracy for score in baseline]),
        "majority": round(100 * float(np.bincount(tested(draws[0])[1]).max() / len(tested(draws[0])[1])), 1),
        "real": round(ceiling.accuracy, 1),
        "real_balanced": round(ceiling.balanced, 1),
        "seconds": round(seconds, 1),
        "peak_mib": round(peak / 1024),
        "synthetic_images": images,
        "epochs": epochs,
    }


def draw(cell: Cell, seed: int) -> Dataset:
    """So many records of the set, and up to 5,000 test images."""
    upload = digits() if cell.dataset == "digits" else public_set(cell.dataset)
    schema, train, test = upload.schema, upload.train, upload.test
    if test is None:
        raise SystemExit("the set has no test images")
    rows = np.sort(np.random.default_rng(seed).permutation(len(train.labels))[: cell.records])
    records = Split(train.images[rows], train.labels[rows])
    judges = np.sort(np.random.default_rng(0).permutation(len(test.labels))[:_TEST_IMAGES])
    real = Split(test.images[judges], test.labels[judges])
    return Dataset(schema.model_copy(update={"num_units": len(rows)}), records, real, PARTITION_KEY)


def read_pool(name: str | None) -> Upload | None:
    """Public images beside the set."""
    return None if name is None else public_set(name)


def released(
    method: AnyMethod, cell: Cell, data: Dataset, seed: int, images: int, epochs: int, public: Upload | None = None
) -> Score:
    """Of a classifier that saw only what a job of `method` released."""
    samples, labels = trained(method, cell, data, seed, public).draw_training_set(images, seed=seed)
    return judged(samples, labels, data, epochs, seed)


def trained(method: AnyMethod, cell: Cell, data: Dataset, seed: int, public: Upload | None = None) -> Generator:
    """What a job of `method` releases."""
    spec = TrainingSpec(method=method, epsilon=cell.epsilon, delta=DELTA, seed=seed)
    return run(spec, data, account=UnchargedAccount(), public=public).generator


def compare_looks(cell: Cell) -> dict[str, Any]:
    """FID, precision and recall of `auto`, of the baseline and of other real images against half of the test images."""
    data = draw(cell, 0)
    images, _ = tested(data)
    encoder, half = ImagenetLite0().load(data.schema), len(images) // 2
    real = encoder.encode(images[:half])
    auto, simple = preset("auto", data.schema, cell.epsilon), build_baseline(data.schema)
    drawn = {
        "auto": trained(auto, cell, data, 0).sample(half, seed=0)[0],
        "moments": trained(simple, cell, data, 0).sample(half, seed=0)[0],
        "real": images[half:],
    }
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
    grid(generator).save(folder / f"{name}.png", optimize=True)


def judged(images: Images, labels: downstream.Targets, data: Dataset, epochs: int, seed: int) -> Score:
    """Of the standard CNN after training on `images`."""
    real, wanted = tested(data)
    classes = data.schema.num_classes
    network = downstream.trained(images, labels, classes, epochs=epochs, seed=seed, device="cpu")
    found = downstream.labelled(network, real, "cpu")
    right = found == wanted
    per_class = [right[wanted == label].mean() for label in np.unique(wanted)]
    return Score(100 * float(right.mean()), 100 * float(np.mean(per_class)))


def tested(data: Dataset) -> tuple[Images, Labels]:
    """The real test images of a cell."""
    if data.test is None:
        raise SystemExit("the set has no test images")
    return data.test.images, data.test.labels


def averages(cell: Cell, data: Dataset, seed: int) -> float:
    """The baseline of noisy class averages."""
    real = Split(*tested(data))
    return class_average_accuracy(
        data.train, real, data.schema.num_classes, epsilon=cell.epsilon, delta=DELTA, seed=seed
    )


def mean(values: list[float]) -> float:
    """In percent, with one digit."""
    return round(statistics.mean(values), 1)


def check() -> list[str]:
    """Kept cells in which `auto`, for the purpose `teach`, is more than a point below the better baseline."""
    latest = {(line["cell"], line.get("public_data")): line for line in read_results("panel")}
    return [
        f"{name}: {line['method']} {reached(line)}, class averages {line['class_averages']}, moments {line['moments']}"
        for (name, _), line in latest.items()
        if reached(line) < max(line["class_averages"], line["moments"]) - _WORSE
    ]


def reached(line: dict[str, Any]) -> float:
    """Accuracy of images that are made to learn from; earlier lines have those to look at alone."""
    accuracy: float = line.get("teach_accuracy", line["accuracy"])
    return accuracy


class Planned(NamedTuple):
    """A result beside the range that its plan expected, in percent."""

    name: str
    reached: float
    low: float
    high: float

    @property
    def inside(self) -> bool:
        """Whether the plan was right."""
        return self.low <= self.reached <= self.high


def compare_plans() -> list[Planned]:
    """Images to look at, those to learn from and class averages of each kept cell, by its newest line."""
    latest = {(line["cell"], line.get("public_data")): line for line in read_results("panel")}
    return [planned for line in latest.values() for planned in _compare(line)]


def _compare(line: dict[str, Any]) -> Iterator[Planned]:
    cell, pool = CELLS[line["cell"]], line.get("public_data")
    schema = SCHEMAS[cell.dataset].model_copy(update={"num_units": cell.records})
    expected = {purpose: expect(_plan(cell, schema, purpose, pool), schema) for purpose in (LOOK, TEACH)}
    yield Planned(line["cell"], line["accuracy"], expected[LOOK].accuracy_low, expected[LOOK].accuracy_high)
    if "teach_accuracy" in line:
        taught = expected[TEACH]
        yield Planned(f"{line['cell']}, teach", line["teach_accuracy"], taught.accuracy_low, taught.accuracy_high)
    ends = expected[LOOK].class_averages_low, expected[LOOK].class_averages_high
    yield Planned(f"{line['cell']}, class averages", line["class_averages"], *ends)


def check_plans() -> list[str]:
    """Results outside of what their plan expects, if they are more than a tenth."""
    compared = compare_plans()
    outside = [f"{one.name}: {one.reached}, expected {one.low} to {one.high}" for one in compared if not one.inside]
    return outside if len(outside) > len(compared) / 10 else []


def _plan(cell: Cell, schema: Schema, purpose: Purpose, pool: str | None) -> TrainingSpec:
    method = preset("auto", schema, cell.epsilon, purpose, pool=pool is not None)
    return TrainingSpec(method=method, epsilon=cell.epsilon, delta=DELTA, public_data=pool and "ds_pool")


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
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    if options.list:
        sys.stdout.write("\n".join(CELLS) + "\n")
    elif options.grid is not None:
        show(CELLS[options.cell], options.public_data, options.grid)
    elif options.check:
        worse = [*check(), *check_plans()]
        sys.stdout.write("\n".join(worse) + "\n" if worse else "auto is nowhere below its baselines and plans\n")
        raise SystemExit(bool(worse))
    elif options.looks:
        print_result({**provenance(), **compare_looks(CELLS[options.cell])})
    else:
        print_result(
            {**provenance(), **measure(CELLS[options.cell], options.public_data, options.images, options.epochs)}
        )


if __name__ == "__main__":
    main()
