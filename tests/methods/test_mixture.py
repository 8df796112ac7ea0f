"""The mixture method: planned equals charged, resume repeats, and two kinds of images in a class stay two."""

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.errors import BudgetExceeded, InfeasiblePlan, InvalidSpec
from datalens_service.methods import ExecutionOptions, Mixture, Moments
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

SIDE, COUNT = 6, 800
UNITS = limit_units(20.0, 1e-4)
METHOD = Mixture(components=2, iterations=3, subspace_dimensions=8, pooling=5.0)


def two_kinds(records_per_unit: int = 1) -> Dataset:
    """Two classes; an image of a class is bright on the left or on the right, never on both sides."""
    rng = np.random.default_rng(0)
    labels, right = rng.integers(2, size=(2, COUNT))
    images = rng.normal(30, 8, (COUNT, SIDE, SIDE, 1))
    for row in range(COUNT):
        columns = slice(3, 6) if right[row] else slice(0, 3)
        images[row, 3 * labels[row] : 3 * labels[row] + 3, columns] += 150
    schema = Schema(
        channels=1, height=SIDE, width=SIDE, class_names=("a", "b"), num_units=COUNT // records_per_unit,
        records_per_unit=records_per_unit, classes_per_unit=2,
    )  # fmt: skip
    units = np.arange(COUNT) // records_per_unit
    return Dataset(schema, Split(images.clip(0, 255).astype(np.uint8), labels, units), None, b"k" * 32)


def fitted(dataset: Dataset, method: Mixture | Moments, account: MemoryAccount):
    training_run = method.create_run(
        method.plan(dataset.schema, UNITS), dataset, TrainingRandomness(0), ExecutionOptions()
    )
    for step in range(training_run.steps):
        training_run.step(step, account, NoiseSource())
    return training_run


def both_sides(images: np.ndarray) -> float:
    """Share of images that are bright on both sides, which no private image is."""
    left, right = images[:, :, :3].max(axis=(1, 2, 3)), images[:, :, 3:].max(axis=(1, 2, 3))
    return float(((left > 100) & (right > 100)).mean())


def test_two_kinds_of_images_stay_two():
    mixture = fitted(two_kinds(), METHOD, MemoryAccount(UNITS)).result().sample(400)[0]
    single = fitted(two_kinds(), Moments(subspace_dimensions=8), MemoryAccount(UNITS)).result().sample(400)[0]
    assert both_sides(mixture) < 0.5 * both_sides(single)


def test_there_is_no_generator_before_the_last_release():
    dataset = two_kinds()
    training_run = METHOD.create_run(
        METHOD.plan(dataset.schema, UNITS), dataset, TrainingRandomness(0), ExecutionOptions()
    )
    assert not any(training_run.may_stop_before(step) for step in range(training_run.steps))
    with pytest.raises(BudgetExceeded):
        fitted(dataset, METHOD, MemoryAccount(UNITS // 2))


def test_requests_that_cannot_work_are_refused():
    schema = two_kinds().schema
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        METHOD.plan(schema, 10)
    with pytest.raises(InvalidSpec, match="share"):
        Mixture(subspace_share=0.6, means_share=0.5).plan(schema, UNITS)
