"""Baseline of noisy class averages: the accuracy of the simplest private release at the same budget.

Images are scaled to unit length, one noisy average per class is released once at the job's own ε and δ, and a test
image gets the class of the nearest average. Unit length bounds a record's influence without a clipping radius that
somebody would have to choose by looking at private images.

The averages are computed on private images but neither released nor charged: the resulting figure is for the
owner alone. The noise is therefore seeded, and kept apart from the noise that protects anything.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.base.parsing import decimal_text
from datalens_service.data.dataset import Labels, Split
from datalens_service.evaluation.metrics.context import Context
from datalens_service.evaluation.metrics.metric import Metric
from datalens_service.evaluation.metrics.outcome import MetricResult, PublicFacts
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.privacy.randomness import TrainingRandomness

Floats = NDArray[np.float64]

# A record adds this to its class's count, in units of its length: 3 % more noise buys a usable count.
_COUNT_WEIGHT = 0.25
_SENSITIVITY = math.hypot(1.0, _COUNT_WEIGHT)
_ROWS, _NUMBERS = 512, 2**21
"""Most images, and most numbers of images, that are vectors at once: 16 MiB."""


def class_average_accuracy(
    train: Split, test: Split, num_classes: int, *, epsilon: float, delta: float, seed: int, records_per_unit: int = 1
) -> float:
    """Return the percentage of test images that nearest noisy averages of the training images classify correctly.

    Args:
        epsilon: ε of the release, under zero-out.

    Raises:
        InvalidSpec: ε or δ is outside its range.
    """
    # A unit of m records moves the sums by m steps.
    mu = mu_for_epsilon(epsilon, delta) / records_per_unit
    rng = TrainingRandomness(seed).numpy("evaluation.floor_averages")
    return _nearest_average_accuracy(noisy_averages(train, num_classes, mu=mu, rng=rng), test)


def noisy_averages(train: Split, num_classes: int, *, mu: float, rng: np.random.Generator) -> Floats:
    """Release averages (num_classes, d), at least 0, of images of unit length, by a Gaussian mechanism of parameter μ.

    A record adds (w, x/‖x‖) to the row of its class and nothing elsewhere. Under zero-out the L2 sensitivity is
    Δ = √(1 + w²), and noise of standard deviation Δ/μ on every number makes the release μ-GDP.
    """
    sums = _counts_and_sums(train, num_classes)
    noisy = sums + rng.normal(0.0, _SENSITIVITY / mu, size=sums.shape)
    counts = np.maximum(noisy[:, :1] / _COUNT_WEIGHT, 1.0)
    return np.maximum(noisy[:, 1:] / counts, 0.0)


def _counts_and_sums(train: Split, num_classes: int) -> Floats:
    """Return the weighted number of records, then the sum of their unit vectors, (num_classes, 1 + d)."""
    totals = np.zeros((num_classes, 1 + math.prod(train.images.shape[1:])))
    for vectors, labels in _unit_vectors(train):
        members = (labels == np.arange(num_classes)[:, None]).astype(np.float64)
        totals[:, 0] += _COUNT_WEIGHT * members.sum(axis=1)
        totals[:, 1:] += members @ vectors
    return totals


def _nearest_average_accuracy(averages: Floats, test: Split) -> float:
    """Return the percentage of test images whose nearest average (in L2) is that of their own class."""
    squares = (averages**2).sum(axis=1)
    right = sum(
        int(((squares - 2 * vectors @ averages.T).argmin(axis=1) == labels).sum())
        for vectors, labels in _unit_vectors(test)
    )
    return 100 * right / len(test.labels)


def _unit_vectors(split: Split) -> Iterator[tuple[Floats, Labels]]:
    """Yield images as vectors of length 1 (black ones stay 0), with their labels, a chunk at a time."""
    dimensions = math.prod(split.images.shape[1:])
    at_once = max(1, min(_ROWS, _NUMBERS // dimensions))
    for start in range(0, len(split.labels), at_once):
        vectors = split.images[start : start + at_once].reshape(-1, dimensions).astype(np.float64)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0)
        yield vectors, split.labels[start : start + at_once]


def _compute(context: Context) -> MetricResult:
    """Classify by the nearest noisy class average; every seed draws its own noise."""
    train, tested, schema = context.training_images, context.test_images, context.schema
    values = [
        class_average_accuracy(
            train,
            tested.split,
            schema.num_classes,
            epsilon=context.epsilon,
            delta=context.delta,
            seed=seed,
            records_per_unit=schema.records_per_unit,
        )
        for seed in range(context.settings.repetitions)
    ]
    named = f"ε = {decimal_text(context.epsilon)} at δ = {decimal_text(context.delta)}"
    protocol = (
        f"nearest of {schema.num_classes} class averages, with the noise of one Gaussian release of "
        f"{named} (zero-out), for comparison: neither released nor charged; "
        f"tested on {tested.name}"
    )
    return MetricResult(tuple(values), protocol)


def _applies(facts: PublicFacts) -> bool:
    return facts.has_test and facts.settings.floors


METRIC: Final = Metric(
    name="floor_averages",
    title="Baseline: noisy class averages",
    meaning="What one noisy average image per class reaches at the same ε and δ. A generator below it adds nothing.",
    unit="percent",
    better="higher",
    reads="training",
    compute=_compute,
    applies=_applies,
    steps=lambda _facts: 0,
    family="floor_averages",
)
