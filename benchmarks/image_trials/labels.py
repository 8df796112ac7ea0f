"""Shapes with a private classifier: `python -m benchmarks.image_trials.labels --dataset mnist --out …`.

A part of μ² trains a classifier as `guided` does: first on samples of `shapes`, then its last layer by noisy gradients
over all records (floating-point noise: a trial). Samples are then judged as they come, where the classifier agrees with
their class, and with its labels instead.

Keys of the JSON, beside commit, machine and versions:

    dataset, content, seed, epsilon, delta, gradient_share, shapes_epsilon, load_average
    classifier: steps → accuracy on real test images, in percent, after so many gradients
    rows: spread, labels       as they come, agreeing, or relabelled
          agreement            share of samples of whose class the classifier is sure, in percent
          fid, consistent, …   `metrics.py`
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.environment import dataset, provenance
from benchmarks.image_trials.metrics import Metrics, train_extractor
from datalens_service.data.dataset import Dataset
from datalens_service.methods import Guided, Shapes
from datalens_service.methods.guided import NoisyGradientDescent, fit_linear_classifier
from datalens_service.models.classifier import Classifier
from datalens_service.models.generators import shapes
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.run import run
from datalens_service.spec import TrainingSpec

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

_DELTA: Final = 1e-5
_SHARE, _STEPS, _EPOCHS = 0.4, 60, 3
_LEARNT, _HEAD, _JUDGED, _KEPT = 30_000, 12_000, 40_000, 25_000
_WIDE, _SPREADS = 1.4, (1.15, 1.4)
_BATCH: Final = 2048


def epsilon_for(mu: float) -> float:
    """The ε of a release of this μ, by bisection."""
    low, high = 1e-3, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if mu_for_epsilon(middle, _DELTA) < mu else (low, middle)
    return low


def sample(generator: Generator, count: int, spread: float, seed: int) -> tuple[Floats, Labels]:
    """Samples (count, d) of half of the vectors, so much wider than records lie, with their classes."""
    settings, schema = {**generator.settings, "spread": spread}, generator.schema
    limits = shapes.tolerances(generator.tensors, settings, schema, 0.5, seed)
    tensors, rng = generator.tensors | {"tolerances": limits}, np.random.default_rng(seed)
    labels = np.arange(count) % schema.num_classes
    starts = range(0, count, _BATCH)
    parts = [shapes.draw(tensors, settings, schema, labels[start : start + _BATCH], rng) for start in starts]
    return np.concatenate(parts), labels


class PrivateClassifier:
    """A classifier of samples whose last layer follows noisy gradients of records."""

    def __init__(self, data: Dataset, samples: Floats, labels: Labels, mu: float, seed: int) -> None:
        self._classifier = Classifier(data.schema, (64, 5), 64, seed)
        self._classifier.fit(samples, labels, _EPOCHS, seed)
        head = fit_linear_classifier(self._features(samples[:_HEAD]), labels[:_HEAD], data.schema.num_classes)
        self._descent = NoisyGradientDescent(Guided(steps=_STEPS), data, self._classifier, head)
        self._stddev = math.sqrt(_STEPS) / mu
        self._rng = np.random.default_rng(seed)

    def step(self) -> None:
        """One noisy gradient."""
        factors = self._descent.factors()
        left, right = (_clipped(np.asarray(part, dtype=np.float64)) for part in (factors.left, factors.right))
        noise = self._stddev * self._rng.standard_normal((left.shape[1], right.shape[1]))
        self._descent.apply_gradient(left.T @ right + noise)

    def predict(self, images: Floats) -> Labels:
        """(n,) classes."""
        scores = self._features(images) @ self._descent.tensors()["head"]
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)

    def _features(self, images: Floats) -> Floats:
        parts = [self._classifier.features(images[start : start + _BATCH]) for start in range(0, len(images), _BATCH)]
        return np.concatenate(parts)


def judged(
    generator: Generator, classifier: PrivateClassifier, metrics: Metrics, seed: int
) -> Iterator[dict[str, Any]]:
    """Rows of the table."""
    schema = generator.schema
    for spread in _SPREADS:
        samples, labels = sample(generator, _JUDGED, spread, seed + 2)
        predicted = classifier.predict(samples)
        agrees = predicted == labels
        shape = (-1, schema.channels, schema.height, schema.width)
        images = np.rint(samples * 255).astype(np.uint8).reshape(shape).transpose(0, 2, 3, 1)
        ways = {
            "as they come": (images, labels),
            "agreeing": (images[agrees], labels[agrees]),
            "relabelled": (images, predicted),
        }
        for name, (chosen, classes) in ways.items():
            row = metrics.of(chosen[:_KEPT], classes[:_KEPT])
            yield {"spread": spread, "labels": name, "agreement": round(100 * float(agrees.mean()), 1), **row}


def _clipped(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1.0))


def _accuracy(classifier: PrivateClassifier, data: Dataset) -> float:
    if data.test is None:
        raise SystemExit("The trials need a set with test images.")
    pixels = data.test.images.transpose(0, 3, 1, 2).reshape(len(data.test.images), -1).astype(np.float32) / 255
    return round(100 * float((classifier.predict(pixels) == data.test.labels).mean()), 2)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--content", choices=["drawings", "objects"], default="drawings")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    data, mu = dataset(options.dataset), mu_for_epsilon(options.epsilon, _DELTA)
    epsilon = epsilon_for(mu * math.sqrt(1 - _SHARE))
    spec = TrainingSpec(method=Shapes(content=options.content), epsilon=epsilon, delta=_DELTA, seed=options.seed)
    generator = run(spec, data, account=UnchargedAccount()).generator
    samples, labels = sample(generator, _LEARNT, _WIDE, options.seed + 1)
    classifier = PrivateClassifier(data, samples, labels, mu * math.sqrt(_SHARE), options.seed)
    learnt = {0: _accuracy(classifier, data)}
    for step in range(1, _STEPS + 1):
        classifier.step()
        if step % 20 == 0:
            learnt[step] = _accuracy(classifier, data)
    head = {
        **provenance(), "dataset": options.dataset, "content": options.content, "seed": options.seed,
        "epsilon": options.epsilon, "delta": _DELTA, "gradient_share": _SHARE, "shapes_epsilon": round(epsilon, 4),
        "load_average": [round(value, 1) for value in os.getloadavg()], "classifier": learnt,
    }  # fmt: skip
    rows = list(judged(generator, classifier, Metrics(data, train_extractor(data)), options.seed))
    options.out.write_text(json.dumps(head | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
