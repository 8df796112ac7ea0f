"""What each part of voting is worth: `python -m benchmarks.ablations >> benchmarks/results/ablations.jsonl`.

Short runs on MNIST at ε = 1 from the setting that learns, one change at a time.
"""

from __future__ import annotations

import argparse
import math
from typing import Any, Final

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from benchmarks.voting_runs import DELTA, LEARNS, Judged, curve
from datalens_service.data.dataset import Dataset
from datalens_service.methods import DataLens
from datalens_service.privacy.accounting import limit_units

EPSILON: Final = 1.0
BASE: Final = LEARNS | {"steps": 100, "student_learning_rate": 6e-3, "student_averaging": 0.9}
"""A third of the steps; the student learns faster."""

PIXELS: Final = {"vote_basis": "pixels", "top_k": 784}

CELLS: Final[dict[str, dict[str, Any]]] = {
    "base": {},
    "top-k: 16 of 64": {"top_k": 16},
    "top-k: 32 of 64": {"top_k": 32},
    "stochastic sign": {"stochastic": True},
    "β = 0.2 of the teachers": {"threshold": 0.2},
    "β = 0.7 of the teachers": {"threshold": 0.7},
    "N = 1,000 teachers of 60 records": {"num_teachers": 1000, "teacher_batch": 75},
    "N = 20,000 teachers of 3 records": {"num_teachers": 20_000, "teacher_batch": 6},
    "σ: 50 steps": {"steps": 50},
    "σ: 200 steps": {"steps": 200},
    "basis: 100 frequencies": {"vote_dimensions": 100, "top_k": 100},
    "basis: 784 pixels": PIXELS,
    "basis: 784 pixels, top-k 200": PIXELS | {"top_k": 200},
    "mixed shards": {"shards": "mixed"},
    "student of the original": {"student": "deconv"},
    "teacher: dense": {"teacher": "dense"},
}

_REPOSITORY_ORDERS: Final = [1.1, *range(2, 200)]
"""Orders that the original's accountant looks at."""

PUBLISHED: Final = [("MNIST, ε = 1", 1.0, 200, 5000), ("MNIST, ε = 10", 10.0, 300, 800)]


def cell(name: str, data: Dataset, seed: int, judged: Judged) -> dict[str, Any]:
    """One change, with the noise that the budget then asks for."""
    method = DataLens(**(BASE | CELLS[name]))
    votes = method.plan(data.schema, limit_units(EPSILON, DELTA)).releases[-1]
    last = curve(method, data, EPSILON, seed, [1.0], judged)[-1]
    noise = votes.mechanism.noise_stddev
    return {"cell": name, "changes": CELLS[name], "noise_stddev": noise, "steps": votes.count, "seed": seed, **last}


def images_allowed(epsilon: float, top_k: int, noise_stddev: int) -> dict[str, int]:
    """Images that a budget pays for: by the original's conversion from Rényi divergence, and exactly."""
    votes = {"top_k": top_k, "noise_stddev": noise_stddev, "images_per_step": 1}
    exact = DataLens.model_validate(votes).plan(dataset("mnist").schema, limit_units(epsilon, DELTA))
    best = max(
        (epsilon - math.log(1 / DELTA) / (order - 1)) / (order * 2 * top_k / noise_stddev**2)
        for order in _REPOSITORY_ORDERS
    )
    return {"original": math.floor(best), "exact": exact.images}


def accounting() -> list[dict[str, Any]]:
    """For the settings of the authors."""
    return [
        {"setting": name, "top_k": top_k, "noise_stddev": noise, **images_allowed(epsilon, top_k, noise)}
        for name, epsilon, top_k, noise in PUBLISHED
    ]


def main() -> None:
    """Measure cell after cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    judged = Judged(options.images, options.epochs)
    origin = provenance()
    data = dataset("mnist")
    result = origin | {
        "dataset": "mnist", "epsilon": EPSILON, "delta": DELTA, "relation": "zero_out", "base": BASE,
        "synthetic_images": judged.images, "epochs": judged.epochs, "accounting": accounting(),
        "cells": [cell(name, data, options.seed, judged) for name in options.cells],
    }  # fmt: skip
    print_result(result)


if __name__ == "__main__":
    main()
