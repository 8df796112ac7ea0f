"""Accuracy over images voted on: `python -m benchmarks.voting --curve kernel-noise-off`.

Each curve is one run on MNIST, measured a few times on the way by the standard CNN on real test images.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from benchmarks.environment import dataset, provenance
from benchmarks.kept_results import print_result
from benchmarks.voting_runs import DELTA, LEARNS, Judged, curve
from datalens_service.methods import DataLens

_FINE: Final = {
    "vote_dimensions": 100, "top_k": 100, "z_dim": 24, "student_learning_rate": 4e-3, "student_averaging": 0.99,
}  # fmt: skip


class Curve(NamedTuple):
    """What is drawn: who votes, and the budget; None leaves the noise out."""

    voters: str
    epsilon: float | None
    settings: Mapping[str, Any]


CURVES: Final = {
    "kernel-noise-off": Curve(
        "kernel teachers, 100 frequencies", None, LEARNS | _FINE | {"images_per_step": 200, "steps": 600}
    ),
    "kernel-epsilon-10": Curve("kernel teachers, 100 frequencies", 10.0, LEARNS | _FINE),
    "kernel-epsilon-1": Curve("kernel teachers, 64 frequencies", 1.0, LEARNS),
}


def measured(name: str, seed: int, judged: Judged, at: list[float]) -> dict[str, Any]:
    """One curve with what it was made from."""
    chosen = CURVES[name]
    points = curve(DataLens(**chosen.settings), dataset("mnist"), chosen.epsilon, seed, at, judged)
    return {
        "curve": name,
        "voters": chosen.voters,
        "dataset": "mnist",
        "epsilon": chosen.epsilon,
        "delta": DELTA if chosen.epsilon else None,
        "relation": "zero_out" if chosen.epsilon else None,
        "settings": dict(chosen.settings),
        "seed": seed,
        "synthetic_images": judged.images,
        "epochs": judged.epochs,
        "points": points,
    }


def main() -> None:
    """Parse, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--curve", choices=sorted(CURVES), required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--images", type=int, default=Judged().images)
    parser.add_argument("--epochs", type=int, default=Judged().epochs)
    parser.add_argument("--at", type=float, nargs="+", default=[0.1, 0.3, 0.6, 1.0], help="shares of the run")
    options = parser.parse_args()
    origin = provenance()
    result = measured(options.curve, options.seed, Judged(options.images, options.epochs), options.at)
    print_result({**origin, **result})


if __name__ == "__main__":
    main()
