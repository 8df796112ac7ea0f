"""Accuracy of the standard CNN on real test images after training on synthetic ones only.

    python -m benchmarks.utility --row auto --dataset mnist --epsilon 1 >> benchmarks/results/utility.jsonl
    python -m benchmarks.utility --row floor --dataset fashion_mnist --epsilon 10
    python -m benchmarks.utility --row warm --set student_learning_rate=1e-4 --held-out

`--row` is a key of `benchmarks.rows.ROWS`, `floor` (noisy class averages) or `ceiling` (real images, no ε). Last
step, mean and spread over seeds, nothing selected on test data.

`--held-out` is for choosing settings: 50,000 training images, judged by the other 10,000; no test image is read.

For the samples of its first seed the row also has their fidelity by the fixed extractor of the set
(`benchmarks.fidelity`): FID, KID, Inception score, precision, recall; and FID and KID of some of them under the random
convolutions of reports. Lines of other seeds (`--first-seed 1`) are pooled by the table with the first of the same job.

`seconds` are those that processors gave to training, all threads together, and `drawing_seconds` to drawing the samples
of the first seed: other work on the machine counts only where it slows a core down.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.environment import dataset, provenance, require_test_split, without_test_images
from benchmarks.fidelity import Fidelity
from benchmarks.grids import write
from benchmarks.kept_results import print_result
from benchmarks.rows import ROWS
from datalens_service.data.dataset import Dataset, Images
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.baselines import class_average_score
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

FLOOR, CEILING = "floor", "ceiling"


def trained_on(images: Images, labels: downstream.Targets, data: Dataset, seed: int) -> float:
    """The standard CNN trained on `images`, tested on the real test split."""
    classes = data.schema.num_classes
    return accuracy_of(downstream.train_network(images, labels, classes, seed=seed, device="cpu"), data)


def accuracy_of(network: nn.Module, data: Dataset) -> float:
    """Percent of the real test images that a network labels correctly."""
    test = require_test_split(data)
    return 100 * float(np.mean(downstream.label_images(network, test.images, "cpu") == test.labels))


def measured(options: argparse.Namespace, data: Dataset) -> dict[str, Any]:
    """The released generator."""
    chosen = ROWS[options.row]
    scores: list[float] = []
    seconds: list[float] = []
    figures: dict[str, Any] = {}
    for seed in seeds(options):
        selection = chosen.options(options.epsilon, options.delta, seed, tuple(options.settings))
        generator, spent = trained(selection.build_spec(data.schema), data)
        seconds.append(spent)
        images, labels, drawing_seconds = drawn(generator, options.images, seed)
        scores.append(trained_on(images, labels, data, seed))
        if seed == options.first_seed:
            figures = {"drawing_seconds": drawing_seconds} | fidelity_on(options, data).of(images, labels)
            if options.grids is not None:
                write(generator, options.grids, options.dataset, options.row, options.epsilon)
    return line(options, chosen.title, scores, statistics.mean(seconds)) | figures


def drawn(generator: Generator, count: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Samples, (n, height, width, channels) and (n,), and the processor seconds that they took."""
    began = time.process_time()
    images, labels = generator.sample(count, seed=seed)
    return images, labels, round(time.process_time() - began, 1)


def trained(spec: TrainingSpec, data: Dataset) -> tuple[Generator, float]:
    """The released generator, and processor seconds of training."""
    began = time.process_time()
    result = run(spec, data, account=UnchargedAccount())
    return result.generator, time.process_time() - began


def floor(options: argparse.Namespace, data: Dataset) -> dict[str, Any]:
    """The baseline of ten noisy class averages, of which the nearest counts."""
    budget = {"epsilon": options.epsilon, "delta": options.delta}
    test = require_test_split(data)
    scores = [class_average_score(data.train, test, data.schema, seed=seed, **budget) for seed in seeds(options)]
    values = [score.accuracy for score in scores]
    figures = fidelity_on(options, data).of_class_averages()
    return line(options, "floor A: noisy class averages", values, None) | figures


def ceiling(options: argparse.Namespace, data: Dataset) -> dict[str, Any]:
    """The standard CNN on the real training images."""
    real = data.train
    values = [trained_on(real.images, real.labels, data, seed) for seed in seeds(options)]
    row = line(options, "ceiling: real images", values, None) | fidelity_on(options, data).of_real_images()
    return row | {"epsilon": None, "delta": None, "relation": None, "synthetic_images": 0}


def fidelity_on(options: argparse.Namespace, data: Dataset) -> Fidelity:
    """Figures beside accuracy."""
    return Fidelity(options.dataset, data, options.held_out)


def seeds(options: argparse.Namespace) -> range:
    """Those to measure."""
    return range(options.first_seed, options.first_seed + options.seeds)


def line(options: argparse.Namespace, title: str, values: Sequence[float], seconds: float | None) -> dict[str, Any]:
    """A line of the table."""
    return {
        "dataset": options.dataset,
        "row": options.row,
        "method": title,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "relation": "zero_out",
        "settings": options.settings,
        "accuracy_mean": round(statistics.mean(values), 2),
        "accuracy_std": round(statistics.stdev(values), 2) if len(values) > 1 else None,
        "seeds": len(values),
        "first_seed": options.first_seed,
        "accuracies": [round(value, 2) for value in values],
        **({"judged_by": "training images left out"} if options.held_out else {}),
        "synthetic_images": options.images,
        "judge": 2,
        "seconds": round(seconds, 1) if seconds is not None else None,
    }


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--row", choices=[*ROWS, FLOOR, CEILING], default="auto")
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="of a trial")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, help="of those; the table pools lines of others")
    parser.add_argument("--images", type=int, default=30_000)
    parser.add_argument("--held-out", action="store_true", help="judge by training images that were left out")
    parser.add_argument("--grids", type=Path, metavar="FOLDER", help="also draw the first samples of the first seed")
    options = parser.parse_args()
    origin = provenance()
    data = dataset(options.dataset)
    if options.held_out:
        data = without_test_images(data)
    measure = {FLOOR: floor, CEILING: ceiling}.get(options.row, measured)
    print_result({**origin, "rows": [measure(options, data)]})


if __name__ == "__main__":
    main()
