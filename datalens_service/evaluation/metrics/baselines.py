"""Baselines that need no generator: naming one class always, and the simplest private release at the same budget.

That release is one noisy average per class of images at 8×8 pixels, at 16×16 or whole: the size is chosen by public
numbers alone. Each image loses its own mean and is scaled to unit length, which bounds a record's influence without a
clipping radius that somebody would have to choose by looking at private images. A test image gets the class of the
nearest average, of whose squared length the part is taken away that is noise.

The averages are computed on private images but neither released nor charged: the resulting figure is for the
owner alone. The noise is therefore seeded, and kept apart from the noise that protects anything.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from datalens_service.base.arrays import Floats
from datalens_service.base.parsing import decimal_text
from datalens_service.data.dataset import Images, Labels, Schema, Split
from datalens_service.evaluation.metrics.context import Context
from datalens_service.evaluation.metrics.discriminant import shrink
from datalens_service.evaluation.metrics.metric import Metric
from datalens_service.evaluation.metrics.outcome import MetricResult, PublicFacts, Score
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.privacy.randomness import TrainingRandomness

# What one record adds to its class's count, in units of its length: 3 % more noise buys a usable count.
_COUNT_WEIGHT = 0.25
_SENSITIVITY = math.hypot(1.0, _COUNT_WEIGHT)
_ROWS, _NUMBERS = 512, 2**21
"""Most images, and most numbers of images, that are vectors at once: 16 MiB."""
_SIDES: Final = {16: 0.05, 8: math.inf}
"""Sides below the whole, with the most noise that a squared distance may have there."""
_NOISE_OF_WHOLE: Final = 0.002


class Averages(NamedTuple):
    """Noisy class averages.

    Attributes:
        vectors: (num_classes, d).
        noise: (num_classes,) what noise adds to the squared length of each, on average.
    """

    vectors: Floats
    noise: Floats


def choose_side(schema: Schema, mu: float) -> int:
    """Longest side of the averages: the largest at which noise leaves distances, by the class size of equal classes."""
    stddev = _SENSITIVITY / mu * schema.num_classes / schema.num_units
    whole = max(schema.height, schema.width)
    sides = {whole: _NOISE_OF_WHOLE} | {side: most for side, most in _SIDES.items() if side < whole}
    noise = {
        side: math.sqrt(2 * min(side, schema.height) * min(side, schema.width) * schema.channels) * stddev**2
        for side in sides
    }
    return next((side for side, most in sides.items() if noise[side] <= most), min(sides))


def class_average_score(train: Split, test: Split, schema: Schema, *, epsilon: float, delta: float, seed: int) -> Score:
    """Score the classification of test images by the nearest noisy average of training images.

    Args:
        schema: Public facts of the images; a unit of m records moves the sums by m steps.
        epsilon: Budget of the release, under zero-out.

    Raises:
        InvalidSpec: ε or δ is outside its range.
    """
    mu = mu_for_epsilon(epsilon, delta) / schema.records_per_unit
    side, rng = choose_side(schema, mu), TrainingRandomness(seed).numpy("evaluation.floor_averages")
    averages = noisy_averages(train, schema.num_classes, side=side, mu=mu, rng=rng)
    return Score.from_labels(nearest_average(averages, test.images, side), test.labels)


def noisy_averages(train: Split, num_classes: int, *, side: int, mu: float, rng: np.random.Generator) -> Averages:
    """Averages of images of unit length, from a Gaussian mechanism with parameter μ.

    A record adds (w, x/‖x‖) to the row of its class and nothing elsewhere. Under zero-out the L2 sensitivity is
    Δ = √(1 + w²), and noise of standard deviation Δ/μ on every number makes the release μ-GDP.
    """
    sums = _counts_and_sums(train, num_classes, side)
    stddev = _SENSITIVITY / mu
    noisy = sums + rng.normal(0.0, stddev, size=sums.shape)
    counts = np.maximum(noisy[:, :1] / _COUNT_WEIGHT, 1.0)
    vectors = noisy[:, 1:] / counts
    return Averages(vectors, vectors.shape[1] * (stddev / counts[:, 0]) ** 2)


def _counts_and_sums(train: Split, num_classes: int, side: int) -> Floats:
    """(num_classes, 1 + d): weighted number of records, then the sum of their unit vectors."""
    parts: list[Floats] = []
    for vectors, labels in _unit_vectors(train, side):
        members = (labels == np.arange(num_classes)[:, None]).astype(np.float64)
        parts.append(np.hstack([_COUNT_WEIGHT * members.sum(axis=1, keepdims=True), members @ vectors]))
    totals: Floats = np.sum(parts, axis=0)
    return totals


def nearest_average(averages: Averages, images: Images, side: int) -> Labels:
    """The class (n,) of the nearest average in L2."""
    squares = (averages.vectors**2).sum(axis=1) - averages.noise
    unlabelled = Split(images, np.zeros(len(images), np.int64))
    found = [(squares - 2 * rows @ averages.vectors.T).argmin(axis=1) for rows, _ in _unit_vectors(unlabelled, side)]
    return np.concatenate(found)


def _unit_vectors(split: Split, side: int) -> Iterator[tuple[Floats, Labels]]:
    """Images without their mean as vectors of length 1 (even ones stay 0), with their labels, a chunk at a time."""
    at_once = max(1, min(_ROWS, _NUMBERS // math.prod(split.images.shape[1:])))
    for start in range(0, len(split.labels), at_once):
        vectors = shrink(split.images[start : start + at_once], side)
        vectors -= vectors.mean(axis=1, keepdims=True)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1.0)
        yield vectors, split.labels[start : start + at_once]


def _compute(context: Context) -> MetricResult:
    """Classify by the nearest noisy class average; every seed draws its own noise."""
    train, tested, schema = context.training_images, context.test_images, context.schema
    budget = {"epsilon": context.epsilon, "delta": context.delta}
    scores = [
        class_average_score(train, tested.split, schema, seed=seed, **budget)
        for seed in range(context.settings.repetitions)
    ]
    side = choose_side(schema, mu_for_epsilon(**budget) / schema.records_per_unit)
    named = f"ε = {decimal_text(context.epsilon)} at δ = {decimal_text(context.delta)}"
    protocol = (
        f"nearest of {schema.num_classes} class averages of at most {side}×{side} pixels, with the noise of one "
        f"Gaussian release of {named} (zero-out), for comparison: neither released nor charged; "
        f"tested on {tested.name}"
    )
    return MetricResult.from_scores(scores, protocol)


def _name_majority(context: Context) -> MetricResult:
    tested = context.test_images
    labels = tested.split.labels
    named = np.full_like(labels, np.bincount(labels).argmax())
    return MetricResult.from_scores([Score.from_labels(named, labels)], f"the most frequent class of {tested.name}")


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
MAJORITY: Final = Metric(
    name="floor_majority",
    title="Baseline: the most frequent class",
    meaning="What naming the most frequent class of the test images always reaches.",
    unit="percent",
    better="higher",
    reads="test",
    compute=_name_majority,
    applies=_applies,
    steps=lambda _facts: 0,
    family="floor_majority",
)
