"""The shapes method: planned equals charged, resume repeats, samples of strokes have edges."""

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.errors import BudgetExceeded, InfeasiblePlan, InvalidSpec
from datalens_service.methods import ExecutionOptions, Moments, Shapes
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

SIDE, COUNT = 14, 600
UNITS = limit_units(20.0, 1e-4)


def bars(records_per_unit: int = 1) -> Dataset:
    """Two classes: an upright and a lying bar, somewhere in the image."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=COUNT)
    images = np.zeros((COUNT, SIDE, SIDE, 1), dtype=np.uint8)
    for row, label in enumerate(labels):
        place, length = rng.integers(3, 9), rng.integers(7, 10)
        if label:
            images[row, place : place + 3, 2 : 2 + length] = 255
        else:
            images[row, 2 : 2 + length, place : place + 3] = 255
    schema = Schema(
        channels=1, height=SIDE, width=SIDE, class_names=("upright", "lying"), num_units=COUNT // records_per_unit,
        records_per_unit=records_per_unit, classes_per_unit=min(2, records_per_unit),
    )  # fmt: skip
    return Dataset(schema, Split(images, labels, np.arange(COUNT) // records_per_unit), None, b"k" * 32)


def fitted(dataset: Dataset, method: Shapes | Moments, account: MemoryAccount):
    plan = method.plan(dataset.schema, UNITS)
    training_run = method.create_run(plan, dataset, TrainingRandomness(0), ExecutionOptions())
    for step in range(training_run.steps):
        training_run.step(step, account, NoiseSource())
    return training_run


def share_of_black(images: np.ndarray) -> float:
    """Of all pixels; six of seven in records."""
    return float((images == 0).mean())


def test_samples_keep_their_class_and_have_edges():
    images, labels = fitted(bars(), Shapes(), MemoryAccount(UNITS)).result().sample(200)
    ink = images[..., 0].astype(float)
    upright = ink.max(axis=2).sum(axis=1) > ink.max(axis=1).sum(axis=1)
    assert (upright == (labels == 0)).mean() > 0.9
    plain = fitted(bars(), Moments(subspace_dimensions=20), MemoryAccount(UNITS)).result().sample(200)[0]
    assert share_of_black(images) > 0.7
    assert share_of_black(plain) < 0.6


def test_there_is_no_generator_before_the_last_release():
    dataset, method = bars(), Shapes()
    training_run = method.create_run(
        method.plan(dataset.schema, UNITS), dataset, TrainingRandomness(0), ExecutionOptions()
    )
    assert not any(training_run.may_stop_before(step) for step in range(training_run.steps))
    with pytest.raises(BudgetExceeded):
        fitted(dataset, method, MemoryAccount(UNITS // 2))


def test_requests_that_cannot_work_are_refused():
    schema = bars().schema
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        Shapes().plan(schema, 10)
    with pytest.raises(InvalidSpec, match="share"):
        Shapes(means_share=0.6, shared_share=0.5).plan(schema, UNITS)


def shaded(dataset: Dataset) -> Dataset:
    """The same with bars of many greys."""
    shades = np.linspace(0.3, 0.7, SIDE)[None, :, None, None]
    images = (dataset.train.images * shades).astype(np.uint8)
    return Dataset(dataset.schema, Split(images, dataset.train.labels, dataset.train.unit_ids), None, b"k" * 32)


def test_a_noisy_count_decides_between_drawings_and_objects():
    account = MemoryAccount(UNITS)
    assert fitted(bars(), Shapes(), account).result().settings["content"] == "drawings"
    assert account.charges[0][2] <= 0.01 * UNITS
    assert fitted(shaded(bars()), Shapes(), MemoryAccount(UNITS)).result().settings["content"] == "objects"


def test_the_count_counts_what_was_released_and_not_records():
    """Resumed with the count of other records, the run follows the count."""
    account = MemoryAccount(UNITS)
    fitted(shaded(bars()), Shapes(), account)
    assert fitted(bars(), Shapes(), account).result().settings["content"] == "objects"


def test_a_measured_content_fits_as_well_as_a_named_one():
    """Zeros behind the vectors of drawings add no number to the model."""
    measured = fitted(bars(), Shapes(), MemoryAccount(UNITS)).result()
    stated = fitted(bars(), Shapes(content="drawings"), MemoryAccount(UNITS)).result()
    shapes = {name: value.shape for name, value in stated.tensors.items()}
    assert {name: value.shape for name, value in measured.tensors.items()} == shapes
    np.testing.assert_allclose(measured.tensors["means"], stated.tensors["means"], atol=6)


def test_where_all_samples_are_accepted_none_is_too_blurred():
    generator = fitted(bars(), Shapes(accepted=1.0), MemoryAccount(UNITS)).result()
    assert np.isinf(generator.tensors["tolerances"]).all()
    assert generator.sample(20)[0].any()
