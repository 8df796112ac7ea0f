"""The moments method: planned equals charged, resume repeats, and without noise it is the textbook fit."""

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.errors import BudgetExceeded, InfeasiblePlan, InvalidSpec
from datalens_service.methods import ExecutionOptions, Mixture, Moments
from datalens_service.methods.sums import record_sums
from datalens_service.models.generators.dct import dct_basis
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.spec import TrainingSpec

from .test_datalens import NoNoise

CLASSES, SIDE, COUNT = 3, 6, 600


def blobs(seed: int = 0) -> Dataset:
    """Three classes of images, each a bright bar at its own place plus variation."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=COUNT)
    images = rng.normal(40, 12, (COUNT, SIDE, SIDE, 1))
    for label in range(CLASSES):
        images[labels == label, 2 * label : 2 * label + 2] += 80
    schema = Schema(channels=1, height=SIDE, width=SIDE, class_names=("a", "b", "c"), num_units=COUNT)
    return Dataset(schema, Split(images.clip(0, 255).astype(np.uint8), labels), None, b"k" * 32)


def fitted(dataset: Dataset, noise, method: Moments, units: int, account: MemoryAccount | None = None):
    plan = method.plan(dataset.schema, units)
    account = account or MemoryAccount(units)
    training_run = method.create_run(plan, dataset, TrainingRandomness(0), ExecutionOptions())
    for step in range(training_run.steps):
        training_run.step(step, account, noise)
    return plan, account, training_run


def test_without_noise_the_means_are_the_class_means():
    dataset = blobs()
    rank = SIDE * SIDE
    method = Moments(subspace_dimensions=rank, clip_norm=1.0, residual_norm=1.0)
    _, _, training_run = fitted(dataset, NoNoise(), method, limit_units(50_000.0, 1e-4))
    tensors = training_run.result().tensors
    pixels = dataset.train.images.reshape(COUNT, -1) / 255.0
    for label in range(CLASSES):
        own = pixels[dataset.train.labels == label]
        mean = tensors["basis"] @ tensors["means"][label]
        np.testing.assert_allclose(mean, own.mean(axis=0), atol=2e-3)


def test_samples_look_like_their_class():
    dataset = blobs()
    _, _, training_run = fitted(dataset, NoiseSource(), Moments(subspace_dimensions=6), limit_units(10.0, 1e-4))
    images, labels = training_run.result().sample(300, seed=1)
    bars = np.stack([images[:, 2 * label : 2 * label + 2].mean(axis=(1, 2, 3)) for label in range(CLASSES)], axis=1)
    assert (bars.argmax(axis=1) == labels).mean() > 0.95


def test_there_is_no_generator_without_all_three_releases():
    dataset, method, units = blobs(), Moments(subspace_dimensions=4), limit_units(5.0, 1e-4)
    training_run = method.create_run(
        method.plan(dataset.schema, units), dataset, TrainingRandomness(0), ExecutionOptions()
    )
    assert not any(training_run.may_stop_before(step) for step in range(training_run.steps))
    with pytest.raises(BudgetExceeded):
        fitted(dataset, NoiseSource(), method, units, MemoryAccount(units // 2))


def test_requests_that_cannot_work_are_refused():
    schema = blobs().schema
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        Moments().plan(schema, 10)
    with pytest.raises(InvalidSpec, match="share"):
        Moments(subspace_share=0.6, means_share=0.5).plan(schema, limit_units(1.0, 1e-4))


def test_large_colour_images_are_seen_through_their_lowest_frequencies(monkeypatch):
    monkeypatch.setattr(record_sums, "_FREQUENCIES", 48)
    schema = Schema(channels=3, height=64, width=64, class_names=("dark", "light"), num_units=60)
    labels = np.arange(60, dtype=np.int64) % 2
    images = np.full((60, 64, 64, 3), 40, dtype=np.uint8)
    images[labels == 1, :32, :, 0] = 220
    dataset = Dataset(schema, Split(images, labels), None, b"k" * 32)
    method, units = Moments(subspace_dimensions=4), limit_units(90.0, 1e-3)
    plan = method.plan(schema, units)
    assert plan.releases[0].mechanism.dimensions == 48
    _, _, training_run = fitted(dataset, NoiseSource(), method, units)
    drawn, wanted = training_run.result().sample(40)
    assert drawn.shape == (40, 64, 64, 3)
    top, bottom = drawn[wanted == 1, :32, :, 0].mean(), drawn[wanted == 1, 32:, :, 0].mean()
    assert top > bottom + 60


def patients(records: int) -> Dataset:
    """The blobs, `records` images to a patient."""
    single = blobs()
    units = np.arange(COUNT, dtype=np.int64) // records
    declared = {"unit": "patient", "num_units": COUNT // records, "records_per_unit": records, "classes_per_unit": 3}
    schema = Schema.model_validate(single.schema.model_dump() | declared)
    return Dataset(schema, Split(single.train.images, single.train.labels, units), None, b"k" * 32)


def test_units_of_several_records_get_more_noise_for_the_same_price():
    units = limit_units(5.0, 1e-4)
    method = Moments(subspace_dimensions=4)
    single, grouped = (method.plan(data.schema, units) for data in (blobs(), patients(4)))
    for alone, together in zip(single.releases, grouped.releases, strict=True):
        assert together.mechanism.records_per_unit == 4
        ratio = together.mechanism.noise_stddev / alone.mechanism.noise_stddev
        assert ratio == pytest.approx(4 * (together.mechanism.grid / alone.mechanism.grid) ** 2, rel=0.05)
    assert 0.999 * units < grouped.cost() <= units


def test_units_of_several_records_lose_none_of_them():
    _, account, training_run = fitted(patients(4), NoNoise(), Moments(subspace_dimensions=4), limit_units(5.0, 1e-4))
    _, _, alone = fitted(blobs(), NoNoise(), Moments(subspace_dimensions=4), limit_units(5.0, 1e-4))
    np.testing.assert_allclose(training_run.fit.means, alone.fit.means, atol=1e-6)
    assert account.charged_units <= limit_units(5.0, 1e-4)


def test_a_coarser_grid_makes_room_for_louder_noise():
    schema = blobs().schema
    fine, coarse = (Moments(subspace_dimensions=4).plan(schema, limit_units(eps, 1e-4)) for eps in (5.0, 0.1))
    assert fine.releases[0].mechanism.grid == 2048
    assert coarse.releases[0].mechanism.grid < 2048
    assert 0.999 * limit_units(0.1, 1e-4) < coarse.cost() <= limit_units(0.1, 1e-4)


def even_images(lowest: int, highest: int, channels: int) -> Dataset:
    images = np.random.default_rng(0).integers(lowest, highest, (400, 8, 8, channels), dtype=np.uint8)
    schema = Schema(channels=channels, height=8, width=8, class_names=("one",), num_units=400)
    return Dataset(schema, Split(images, np.zeros(400, dtype=np.int64)), None, b"k" * 32)


def brightness(method: Moments | Mixture, dataset: Dataset) -> float:
    _, _, training_run = fitted(dataset, NoNoise(), method, limit_units(50.0, 1e-4))
    return float(training_run.result().sample(200)[0].mean())


def test_bright_images_keep_their_brightness_around_a_middle_grey():
    """Measured from black they are too long, and come out dark."""
    sky = even_images(200, 256, channels=3)
    assert brightness(Moments(subspace_dimensions=5), sky) < 120
    assert abs(brightness(Moments(subspace_dimensions=5, center=0.5), sky) - 227) < 20


@pytest.mark.parametrize("method", [Moments(center=0.5), Mixture(center=0.5, components=2)], ids=lambda one: one.name)
def test_what_is_taken_off_records_is_given_back_to_samples(method):
    assert abs(brightness(method, even_images(108, 148, channels=1)) - 127.5) < 3


@pytest.mark.parametrize("method", [Moments(frequencies=6), Mixture(frequencies=6, components=2)])
def test_nothing_finer_than_the_named_frequencies_is_summed(method):
    """60 directions of the subspace are no more than there are frequencies."""
    plan, _, training_run = fitted(even_images(0, 256, channels=2), NoNoise(), method, limit_units(50.0, 1e-4))
    assert plan.releases[0].mechanism.dimensions == 6
    basis = training_run.result().tensors["basis"]
    assert basis.shape == (128, 6)
    lowest = dct_basis(even_images(0, 256, channels=2).schema, 6)
    np.testing.assert_allclose(lowest @ (lowest.T @ basis), basis, atol=1e-6)


def test_a_job_from_before_there_was_a_centre_keeps_its_digest():
    for method in (Moments(), Mixture()):
        assert "frequencies" not in TrainingSpec(method=method, epsilon=1.0, delta=1e-5).model_dump_json()
        assert "center" not in TrainingSpec(method=method, epsilon=1.0, delta=1e-5).model_dump_json()
