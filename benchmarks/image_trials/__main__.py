"""Trials of released models: `python -m benchmarks.image_trials --dataset mnist --out …`.

A trial encodes all training images, fits a model with noise for ε (or without), draws samples, and keeps the share of
each class that comes back best from being decoded and encoded again. Noise is floating-point Gaussian noise: these are
trials, not releases.

Keys of the JSON, beside commit, machine and versions:

    dataset, seed, load_average
    rows: representation, fit     names in `representations.py` and `fits.py`
          epsilon, mu             of the release at δ = 1e-5; null and null without noise
          spread, accepted        how much wider samples lie than records; share of them that is kept
          fid, consistent, precision, recall, accuracy, images, epochs    `metrics.py`
          encode_seconds, fit_seconds, sample_seconds
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.environment import dataset, provenance
from benchmarks.image_trials.fits import FITS
from benchmarks.image_trials.metrics import Metrics, save_grid, train_extractor
from benchmarks.image_trials.representations import REPRESENTATIONS, Representation
from datalens_service.data.dataset import Dataset, Images
from datalens_service.privacy.accounting import mu_for_epsilon

_DELTA: Final = 1e-5
_IMAGES: Final = 5000
_CLASSES: Final = 10
# Of the level sets, which alone are encoded again.
_FIELD_NUMBERS: Final = 144


class Trial(NamedTuple):
    """One model, and the ways of drawing from it: pairs of spread and accepted share."""

    representation: str
    fit: str
    draws: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    epsilons: tuple[float | None, ...] = (1.0, None)


_CHOICES: Final = ((1.0, 1.0), (1.0, 0.25), (1.15, 0.5), (1.15, 0.25))
TRIALS: Final = {
    "mnist": (
        Trial("pixels", "gaussian"),
        Trial("posed pixels", "gaussian"),
        Trial("distances", "gaussian"),
        Trial("posed distances", "gaussian"),
        Trial("drawings", "gaussian"),
        Trial("drawings", "hierarchical", _CHOICES, (1.0, 10.0, None)),
        Trial("drawings", "components", ((1.15, 0.5),), (1.0, 10.0, None)),
    ),
    "fashion_mnist": (
        Trial("pixels", "gaussian"),
        Trial("objects", "gaussian"),
        Trial("objects", "hierarchical", _CHOICES, (1.0, 10.0, None)),
        Trial("objects", "components", ((1.15, 0.5),), (1.0, 10.0, None)),
    ),
}
"""By data set."""


class Encoder:
    """All training images of a set as vectors; remembers those of the representation before."""

    def __init__(self, data: Dataset) -> None:
        self.labels = data.train.labels
        self._data = data
        self._last: tuple[str, Representation, NDArray[np.float64], float] | None = None

    def encode(self, name: str) -> tuple[Representation, NDArray[np.float64], float]:
        """The representation, the vectors, and the seconds it took to make them."""
        if self._last is None or self._last[0] != name:
            chosen, start = REPRESENTATIONS[name](self._data.schema), time.perf_counter()
            self._last = name, chosen, chosen.encode(self._data.train.images), time.perf_counter() - start
        return self._last[1:]


def measure(trial: Trial, encoder: Encoder, metrics: Metrics, seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Rows of one trial."""
    chosen, vectors, seconds = encoder.encode(trial.representation)
    known = encoder.labels
    for epsilon in trial.epsilons:
        mu = np.inf if epsilon is None else mu_for_epsilon(epsilon, _DELTA)
        start = time.perf_counter()
        draw = FITS[trial.fit](vectors, known, chosen, mu, seed)
        fitted = time.perf_counter() - start
        for spread, accepted in trial.draws:
            start = time.perf_counter()
            labels = np.arange(round(_IMAGES / accepted)) % _CLASSES
            sampled = draw(labels, spread, np.random.default_rng(seed + 1))
            images, labels = _accepted(chosen, sampled, labels, accepted)
            name = f"{trial.representation}-{trial.fit}-{epsilon}-{spread}-{accepted}".replace(" ", "_")
            save_grid(images, folder / f"{name}.png")
            yield {
                "representation": trial.representation,
                "fit": trial.fit,
                "epsilon": epsilon,
                "mu": None if epsilon is None else round(mu, 4),
                "spread": spread,
                "accepted": accepted,
                "sample_seconds": round(time.perf_counter() - start, 1),
                **metrics.of(images, labels),
                "encode_seconds": round(seconds),
                "fit_seconds": round(fitted, 1),
            }


def _accepted(
    chosen: Representation, vectors: NDArray[np.float64], labels: NDArray[np.int64], share: float
) -> tuple[Images, NDArray[np.int64]]:
    """Images of the share of each class that comes back best; the classes take turns."""
    side = 28
    images = np.rint(chosen.decode(vectors) * 255).astype(np.uint8).reshape(-1, side, side, 1)
    if share == 1:
        return images, labels
    errors = ((chosen.encode(images) - vectors) ** 2)[:, :_FIELD_NUMBERS].sum(axis=1)
    count = round(len(labels) * share / _CLASSES)
    best = [np.flatnonzero(labels == label)[np.argsort(errors[labels == label])[:count]] for label in range(_CLASSES)]
    shuffled = np.random.default_rng(0).permutation(count)
    rows = np.stack(best)[:, shuffled].T.ravel()
    return images[rows], labels[rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=sorted(TRIALS), required=True)
    parser.add_argument("--fit", choices=sorted(FITS), help="trials of this fit only")
    parser.add_argument("--representation", choices=sorted(REPRESENTATIONS), help="trials of this one only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--grids", type=Path, default=Path("build/image_trials"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    folder = options.grids / options.dataset
    folder.mkdir(parents=True, exist_ok=True)
    data = dataset(options.dataset)
    metrics, encoder, rows = Metrics(data, train_extractor(data)), Encoder(data), []
    for trial in TRIALS[options.dataset]:
        if options.fit not in (None, trial.fit) or options.representation not in (None, trial.representation):
            continue
        for row in measure(trial, encoder, metrics, options.seed, folder):
            rows.append(row)
            print(json.dumps(row), flush=True)
            load = [round(value, 1) for value in os.getloadavg()]
            head = {**provenance(), "dataset": options.dataset, "seed": options.seed, "load_average": load}
            options.out.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
