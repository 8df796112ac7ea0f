"""Voting runs for benchmarks, with the noise of a budget or without any.

Only here can the noise be left out: a job takes its noise from `NoiseSource`, and no setting of a spec changes that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from benchmarks.earlier_judge import earlier_accuracy
from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms import Account
from datalens_service.methods import DataLens, ExecutionOptions
from datalens_service.methods.driver import Training
from datalens_service.methods.script import RunInputs
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

DELTA = 1e-5
DEVICE = "cpu"

LEARNS: dict[str, Any] = {
    "teacher": "kernel",
    "student": "class_networks",
    "shards": "class_pure",
    "vote_basis": "dct",
    "vote_dimensions": 64,
    "top_k": 64,
    "teacher_batch": 20,
    "clip": 10.0,
    "stochastic": False,
    "threshold": "none",
    "images_per_step": 100,
    "steps": 300,
    "z_dim": 16,
    "image_step_size": 1.0,
    "student_learning_rate": 3e-3,
    "student_averaging": 0.97,
}
"""The setting that learns."""


class Silence:
    """No noise at all: what the votes would say if nobody had to be protected."""

    def discrete_gaussian(self, shape: tuple[int, ...], noise_stddev: int) -> np.ndarray:
        """Zeros."""
        return np.zeros(shape, dtype=np.int64)


class Judged(NamedTuple):
    """How the standard CNN was trained."""

    images: int = 20_000
    epochs: int = 3


def curve(
    method: DataLens, data: Dataset, epsilon: float | None, seed: int, at: Iterable[float], judged: Judged
) -> list[dict[str, Any]]:
    """Accuracy over images voted on.

    Args:
        method: Of the run.
        data: Public.
        epsilon: Of the budget; None trains without noise.
        seed: Of run and classifier.
        at: Shares of the run after which it is measured, up to 1.
        judged: Synthetic images and epochs of the classifier.
    """
    units = limit_units(epsilon or 1.0, DELTA)
    plan = method.plan(data.schema, units)
    account: Account = MemoryAccount(units)
    noise: Any = NoiseSource() if epsilon else Silence()
    inputs = RunInputs(TrainingRandomness(seed), ExecutionOptions(DEVICE))
    training = Training(method, plan, data, account, inputs)
    points = []
    for votes, seconds, model in generators(training, plan.steps, noise, at):
        images, labels = model.sample(judged.images, seed=seed)
        accuracy = earlier_accuracy(images, labels, data, judged.epochs, seed)
        points.append({"images": votes * method.images_per_step, "accuracy": round(accuracy, 2), "seconds": seconds})
    return points


def generators(
    training: Training, steps: int, noise: Any, at: Iterable[float], clock: Callable[[], float] = time.process_time
) -> Iterator[tuple[int, float, Generator]]:
    """Train, and give votes, seconds of the clock and generator after some shares of the run."""
    stops, seconds = {max(1, round(share * steps)) for share in at}, 0.0
    for step in range(steps):
        began = clock()
        training.step(noise)
        seconds += clock() - began
        if step + 1 in stops:
            model = training.outcome().model
            if not isinstance(model, Generator):
                raise TypeError("voting makes a generator")
            yield step + 1, round(seconds, 1), model
