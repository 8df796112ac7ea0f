"""Methods of sums: without noise the textbook fit, two kinds of a class stay two, and what they all refuse."""

from typing import Any

import numpy as np
import pytest

from datalens_service.base.errors import BudgetExceeded, InfeasiblePlan, InvalidSpec
from datalens_service.data.dataset import Dataset
from datalens_service.methods import Method, Mixture, Moments, PooledMoments, Shapes
from datalens_service.methods.sums import record_sums
from datalens_service.models.generators.dct import dct_basis
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec

from .builders import NoNoise, advance, dataset, start, train

CLASSES, SIDE, COUNT = 3, 6, 600


def blobs(**declared: Any) -> Dataset:
    """Three classes of images, each a bright bar at its own place plus variation."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=COUNT)
    images = rng.normal(40, 12, (COUNT, SIDE, SIDE, 1))
    for label in range(CLASSES):
        images[labels == label, 2 * label : 2 * label + 2] += 80
    return dataset(images, labels, ("a", "b", "c"), **declared)


def test_without_noise_the_means_are_the_class_means():
    data = blobs()
    method = Moments(subspace_dimensions=SIDE * SIDE, clip_norm=1.0, residual_norm=1.0)
    tensors = train(method, data, limit_units(50_000.0, 1e-4), noise=NoNoise()).result().tensors
    pixels = data.train.images.reshape(COUNT, -1) / 255.0
    for label in range(CLASSES):
        own = pixels[data.train.labels == label]
        mean = tensors["basis"] @ tensors["means"][label]
        np.testing.assert_allclose(mean, own.mean(axis=0), atol=2e-3)


def test_samples_look_like_their_class():
    model = train(Moments(subspace_dimensions=6), blobs(), limit_units(10.0, 1e-4)).result()
    images, labels = model.sample(300, seed=1)
    bars = np.stack([images[:, 2 * label : 2 * label + 2].mean(axis=(1, 2, 3)) for label in range(CLASSES)], axis=1)
    assert (bars.argmax(axis=1) == labels).mean() > 0.95


SUMS = (Moments(subspace_dimensions=4), Mixture(components=2, iterations=3), PooledMoments(), Shapes())
each_method = pytest.mark.parametrize("method", SUMS, ids=lambda one: one.name)


@each_method
def test_there_is_no_generator_before_the_last_release(method: Method):
    units = limit_units(20.0, 1e-4)
    training_run, account = start(method, blobs(), units), MemoryAccount(units)
    steps = range(training_run.begin(account).plan.steps)
    assert not any(advance(training_run, account, step).begin().can_stop for step in steps)
    with pytest.raises(BudgetExceeded):
        train(method, blobs(), units, MemoryAccount(units // 2))


@each_method
def test_a_budget_too_small_for_sums_is_refused(method: Method):
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        method.plan(blobs().schema, 10)


@pytest.mark.parametrize(
    "method",
    [
        Moments(subspace_share=0.6, means_share=0.5),
        Mixture(subspace_share=0.6, means_share=0.5),
        PooledMoments(center_share=0.6, means_share=0.5),
        Shapes(means_share=0.6, shared_share=0.5),
    ],
    ids=lambda one: one.name,
)
def test_shares_that_leave_nothing_are_refused(method: Method):
    with pytest.raises(InvalidSpec, match="share"):
        method.plan(blobs().schema, limit_units(20.0, 1e-4))


def test_large_colour_images_are_seen_through_their_lowest_frequencies(monkeypatch):
    monkeypatch.setattr(record_sums, "_FREQUENCIES", 48)
    labels = np.arange(60, dtype=np.int64) % 2
    images = np.full((60, 64, 64, 3), 40, dtype=np.uint8)
    images[labels == 1, :32, :, 0] = 220
    data, method, units = dataset(images, labels), Moments(subspace_dimensions=4), limit_units(90.0, 1e-3)
    assert method.plan(data.schema, units).releases[0].mechanism.dimensions == 48
    drawn, wanted = train(method, data, units).result().sample(40)
    assert drawn.shape == (40, 64, 64, 3)
    top, bottom = drawn[wanted == 1, :32, :, 0].mean(), drawn[wanted == 1, 32:, :, 0].mean()
    assert top > bottom + 60


def patients(records: int) -> Dataset:
    """The blobs, `records` images to a patient."""
    return blobs(unit="patient", records_per_unit=records)


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
    method, units = Moments(subspace_dimensions=4), limit_units(5.0, 1e-4)
    together, alone = (train(method, data, units, noise=NoNoise()) for data in (patients(4), blobs()))
    np.testing.assert_allclose(together.local("fit").means, alone.local("fit").means, atol=1e-6)


def test_a_coarser_grid_makes_room_for_louder_noise():
    schema = blobs().schema
    fine, coarse = (Moments(subspace_dimensions=4).plan(schema, limit_units(eps, 1e-4)) for eps in (5.0, 0.1))
    assert fine.releases[0].mechanism.grid == 2048
    assert coarse.releases[0].mechanism.grid < 2048
    assert 0.999 * limit_units(0.1, 1e-4) < coarse.cost() <= limit_units(0.1, 1e-4)


def even_images(lowest: int, highest: int, channels: int) -> Dataset:
    images = np.random.default_rng(0).integers(lowest, highest, (400, 8, 8, channels), dtype=np.uint8)
    return dataset(images, np.zeros(400, dtype=np.int64), ("one",))


def brightness(method: Moments | Mixture, data: Dataset) -> float:
    return float(train(method, data, limit_units(50.0, 1e-4), noise=NoNoise()).result().sample(200)[0].mean())


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
    data, units = even_images(0, 256, channels=2), limit_units(50.0, 1e-4)
    assert method.plan(data.schema, units).releases[0].mechanism.dimensions == 6
    basis = train(method, data, units, noise=NoNoise()).result().tensors["basis"]
    assert basis.shape == (128, 6)
    lowest = dct_basis(data.schema, 6)
    np.testing.assert_allclose(lowest @ (lowest.T @ basis), basis, atol=1e-6)


def test_a_job_from_before_there_was_a_centre_keeps_its_digest():
    for method in (Moments(), Mixture()):
        assert "frequencies" not in TrainingSpec(method=method, epsilon=1.0, delta=1e-5).model_dump_json()
        assert "center" not in TrainingSpec(method=method, epsilon=1.0, delta=1e-5).model_dump_json()


def two_kinds() -> Dataset:
    """Two classes; an image of a class is bright on the left or on the right, never on both sides."""
    rng = np.random.default_rng(0)
    labels, right = rng.integers(2, size=(2, COUNT))
    images = rng.normal(30, 8, (COUNT, SIDE, SIDE, 1))
    for row in range(COUNT):
        columns = slice(3, 6) if right[row] else slice(0, 3)
        images[row, 3 * labels[row] : 3 * labels[row] + 3, columns] += 150
    return dataset(images, labels)


def both_sides(images: np.ndarray) -> float:
    """Share of images that are bright on both sides, which no private image is."""
    left, right = images[:, :, :3].max(axis=(1, 2, 3)), images[:, :, 3:].max(axis=(1, 2, 3))
    return float(((left > 100) & (right > 100)).mean())


def test_two_kinds_of_images_stay_two():
    method, units = Mixture(components=2, iterations=3, subspace_dimensions=8, pooling=5.0), limit_units(20.0, 1e-4)
    mixture = train(method, two_kinds(), units).result().sample(400)[0]
    single = train(Moments(subspace_dimensions=8), two_kinds(), units).result().sample(400)[0]
    assert both_sides(mixture) < 0.5 * both_sides(single)
