"""Accuracy of classifier A on real test images after training on synthetic ones only.

    python -m benchmarks.utility --dataset mnist --method moments --epsilon 1 --seeds 3

Last epoch, mean and spread over seeds, nothing selected on test data. A DataLens run with a warm start is
measured before and after its votes on the same budget. `--floors` adds floor A, floor B and the ceiling.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.environment import dataset, provenance
from datalens_service.data.dataset import Dataset
from datalens_service.evaluation.downstream import accuracy
from datalens_service.evaluation.floors import class_average_accuracy
from datalens_service.methods import AnyMethod, Moments
from datalens_service.models.generator import Generator
from datalens_service.presets import preset
from datalens_service.run import run
from datalens_service.spec import TrainingSpec

METHODS: dict[str, Callable[[Dataset, float], AnyMethod]] = {
    "moments": lambda data, epsilon: preset("fast", data.schema, epsilon),
    "datalens-warm-start": lambda data, epsilon: preset("balanced", data.schema, epsilon),
    "datalens-paper-dense": lambda data, epsilon: preset("paper", data.schema, epsilon).model_copy(
        update={"teacher": "dense"}
    ),
}


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
    method = METHODS[options.method](data, options.epsilon)
    for seed in range(options.seeds):
        spec = TrainingSpec(method=method, epsilon=options.epsilon, delta=options.delta, seed=seed)
        began = time.monotonic()
        result = run(spec, data)
        seconds.append(time.monotonic() - began)
        named = {options.method: result.generator, f"{options.method}: before votes": result.start_generator}
        for name, generator in named.items():
            if generator is not None:
                found = score(generator, data, options.images, options.epochs, seed)
                scores.setdefault(name, []).append(found)
    return [row(options, name, values, statistics.mean(seconds)) for name, values in scores.items()]


def floors(options: argparse.Namespace, data: Dataset) -> list[dict[str, Any]]:
    """Floor A, floor B (moments without votes) and the real-data ceiling."""
    floor_a, floor_b, ceiling = [], [], []
    for seed in range(options.seeds):
        floor_a.append(
            class_average_accuracy(
                data.train, data.test, data.schema.num_classes, epsilon=options.epsilon, delta=options.delta, seed=seed
            )
        )
        spec = TrainingSpec(method=Moments(), epsilon=options.epsilon, delta=options.delta, seed=seed)
        floor_b.append(score(run(spec, data).generator, data, options.images, options.epochs, seed))
        ceiling.append(trained_on(data.train.images, data.train.labels, data, options.epochs, seed))
    names = {"floor A: noisy class averages": floor_a, "floor B: moments": floor_b, "ceiling: real images": ceiling}
    return [row(options, name, values, None) for name, values in names.items()]


def row(options: argparse.Namespace, name: str, values: Sequence[float], seconds: float | None) -> dict[str, Any]:
    """A line of the table."""
    return {
        "dataset": options.dataset,
        "method": name,
        "epsilon": options.epsilon,
        "delta": options.delta,
        "relation": "zero_out",
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
    parser.add_argument("--method", choices=sorted(METHODS), default="moments")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--floors", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    options = parser.parse_args()
    data = dataset(options.dataset)
    rows = measured(options, data) + (floors(options, data) if options.floors else [])
    text = json.dumps({**provenance(), "rows": rows}, indent=2)
    print(text)
    if options.out:
        options.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
