"""Accuracy of classifier A on real test images after training on synthetic ones only.

    python -m benchmarks.utility --dataset mnist --preset fast --epsilon 1 --seeds 3
    python -m benchmarks.utility --preset balanced --set student_learning_rate=1e-4

Last epoch, mean and spread over seeds, nothing selected on test data. A run with a warm start is
measured before and after it was refined, on the same budget. `--floors` adds floor A and the ceiling; floor B, moments
without votes at the whole budget, is the preset `fast`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environment import dataset, provenance
from datalens_service.cli.specs import SpecOptions
from datalens_service.data.dataset import Dataset
from datalens_service.evaluation.downstream import accuracy
from datalens_service.evaluation.floors import class_average_accuracy
from datalens_service.models.generator import Generator
from datalens_service.presets import PRESETS
from datalens_service.run import run


def score(generator: Generator, data: Dataset, images: int, epochs: int, seed: int) -> float:
    """Classifier A's accuracy in percent."""
    synthetic, labels = generator.sample(images, seed=seed)
    return trained_on(synthetic, labels, data, epochs, seed)


def trained_on(images: np.ndarray, labels: np.ndarray, data: Dataset, epochs: int, seed: int) -> float:
    """Classifier A trained on `images`, tested on the real test split."""
    if data.test is None:
        raise SystemExit("the data set has no test split")
    classes = data.schema.num_classes
    return accuracy(images, labels, data.test.images, data.test.labels, classes, epochs=epochs, seed=seed, device="cpu")


def measured(options: argparse.Namespace, data: Dataset) -> list[dict[str, Any]]:
    """One row per generator: the released one and, with a warm start, the one before the votes."""
    scores: dict[str, list[float]] = {}
    seconds: list[float] = []
    for seed in range(options.seeds):
        wanted = SpecOptions(
            options.epsilon, options.delta, preset=options.preset, settings=options.settings, seed=seed
        )
        began = time.monotonic()
        result = run(wanted.spec(data.schema), data)
        seconds.append(time.monotonic() - began)
        start = None if options.released_only else result.start_generator
        named = {options.preset: result.generator, f"{options.preset}, warm start alone": start}
        for name, generator in named.items():
            if generator is not None:
                found = score(generator, data, options.images, options.epochs, seed)
                scores.setdefault(name, []).append(found)
    return [row(options, name, values, statistics.mean(seconds)) for name, values in scores.items()]


def floors(options: argparse.Namespace, data: Dataset) -> list[dict[str, Any]]:
    """Floor A and the real-data ceiling."""
    floor_a, ceiling = [], []
    for seed in range(options.seeds):
        budget = {"epsilon": options.epsilon, "delta": options.delta}
        floor_a.append(class_average_accuracy(data.train, data.test, data.schema.num_classes, seed=seed, **budget))
        ceiling.append(trained_on(data.train.images, data.train.labels, data, options.epochs, seed))
    names = {"floor A: noisy class averages": floor_a, "ceiling: real images": ceiling}
    return [row(options, name, values, None) for name, values in names.items()]


def row(options: argparse.Namespace, name: str, values: Sequence[float], seconds: float | None) -> dict[str, Any]:
    """A line of the table."""
    return {
        "dataset": options.dataset,
        "method": name,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "relation": "zero_out",
        "settings": options.settings,
        "accuracy_mean": round(statistics.mean(values), 2),
        "accuracy_std": round(statistics.stdev(values), 2) if len(values) > 1 else None,
        "seeds": len(values),
        "synthetic_images": options.images,
        "epochs": options.epochs,
        "seconds": round(seconds, 1) if seconds is not None else None,
    }


def main() -> None:
    """Parse, measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=("mnist", "fashion_mnist"), default="mnist")
    parser.add_argument("--preset", choices=sorted(PRESETS), default="fast")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--floors", action="store_true")
    parser.add_argument("--released-only", action="store_true", help="not the warm start by itself")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    origin = provenance()
    data = dataset(options.dataset)
    rows = measured(options, data) + (floors(options, data) if options.floors else [])
    text = json.dumps({**origin, "rows": rows}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
