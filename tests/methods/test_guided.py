"""The guided method: planned equals charged, resume repeats, and labels come from the trained classifier."""

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.errors import BudgetExceeded, InfeasiblePlan
from datalens_service.mechanisms.private_records import PrivateRecords, Rows
from datalens_service.methods import ExecutionOptions, Guided, Mixture, Moments
from datalens_service.methods.last_layer.guided import (
    Layer,
    NoisyGradientDescent,
    classifier_features,
    layer_gradients,
)
from datalens_service.models.classifier import LastLayerClassifier
from datalens_service.models.generators.gaussian.guided import propose
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount, UnchargedAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

SIDE, COUNT = 8, 1200
UNITS = limit_units(50.0, 1e-4)
METHOD = Guided(
    warm_start=Moments(subspace_dimensions=6), steps=12, samples=400, epochs=3, hidden_units=8, poses=False, spread=1.0
)


def crosses(seed: int = 0, records_per_unit: int = 1) -> Dataset:
    """Class 0: bright at the top left or at the bottom right; class 1: at the other two corners.

    Both classes have the same mean and nearly the same spread in every direction but one: samples of a Gaussian
    show corners that no record of their class has, and a classifier of records knows it.
    """
    rng = np.random.default_rng(seed)
    labels, low = rng.integers(2, size=(2, COUNT))
    images = rng.normal(30, 8, (COUNT, SIDE, SIDE, 1))
    for row in range(COUNT):
        column = low[row] ^ labels[row]
        images[row, 4 * low[row] : 4 * low[row] + 4, 4 * column : 4 * column + 4] += 170
    schema = Schema(
        channels=1, height=SIDE, width=SIDE, class_names=("a", "b"), num_units=COUNT // records_per_unit,
        records_per_unit=records_per_unit, classes_per_unit=2,
    )  # fmt: skip
    units = np.arange(COUNT) // records_per_unit
    return Dataset(schema, Split(images.clip(0, 255).astype(np.uint8), labels, units), None, b"k" * 32)


def trained(dataset: Dataset, method: Guided, account: MemoryAccount):
    training_run = method.create_run(
        method.plan(dataset.schema, UNITS), dataset, TrainingRandomness(0), ExecutionOptions()
    )
    for step in range(training_run.steps):
        training_run.step(step, account, NoiseSource())
    return training_run


def unpack_classifier(training_run) -> LastLayerClassifier:
    return LastLayerClassifier.from_tensors(crosses().schema, training_run._gradient_descent().tensors())


def test_gradients_over_records_correct_the_classifier():
    """A last layer that knows nothing learns the classes from sums over records alone."""
    dataset = crosses()
    classifier, weights = trained(dataset, METHOD, MemoryAccount(UNITS))._pretrained_classifier()
    descent = NoisyGradientDescent(METHOD, PrivateRecords.from_dataset(dataset), classifier, np.zeros_like(weights))
    layer_sum = METHOD.plan(dataset.schema, UNITS).releases[-1].mechanism
    pixels = crosses(1).train.images.transpose(0, 3, 1, 2).reshape(COUNT, -1).astype(np.float32) / 255
    truth = crosses(1).train.labels

    def right() -> float:
        return (LastLayerClassifier.from_tensors(dataset.schema, descent.tensors()).predict(pixels) == truth).mean()

    assert right() < 0.6
    for step in range(METHOD.steps):
        descent.step(layer_sum, step=step, account=UnchargedAccount(), noise=NoiseSource())
    assert right() > 0.95


def test_samples_carry_the_labels_that_were_asked_for():
    training_run = trained(crosses(), METHOD, MemoryAccount(UNITS))
    wanted = np.array([1] * 30 + [0] * 10)
    images, labels = training_run.result().sample(40, labels=wanted, seed=3)
    np.testing.assert_array_equal(labels, wanted)
    given = unpack_classifier(training_run).predict(
        images.transpose(0, 3, 1, 2).reshape(40, -1).astype(np.float32) / 255
    )
    assert (given == wanted).mean() > 0.9
    again, _ = training_run.result().sample(40, labels=wanted, seed=3)
    np.testing.assert_array_equal(images, again)


def test_a_class_that_is_seldom_named_still_gets_samples_that_are_named_so(monkeypatch):
    generator, wanted = trained(crosses(), METHOD, MemoryAccount(UNITS)).result(), np.ones(400, dtype=np.int64)

    def corners(seed: int) -> np.ndarray:
        return generator.sample(400, labels=wanted, seed=seed)[0][:, 0, -1, 0]

    monkeypatch.setattr(LastLayerClassifier, "predict", lambda _, images: np.ones(len(images), dtype=np.int64))
    bright = np.quantile(corners(1), 0.8)
    monkeypatch.setattr(
        LastLayerClassifier, "predict", lambda _, images: (255 * images[:, SIDE - 1] > bright).astype(np.int64)
    )
    # A fifth of the samples of its own class will do; eight looks would leave a sixth of the places without one.
    assert (corners(3) >= np.floor(bright)).mean() > 0.95


def test_a_budget_that_ends_early_leaves_the_classifier_of_the_last_gradient():
    dataset, plan = crosses(), METHOD.plan(crosses().schema, UNITS)
    training_run = METHOD.create_run(plan, dataset, TrainingRandomness(0), ExecutionOptions())
    poor = MemoryAccount(plan.cost() - plan.releases[-1].mechanism.cost())
    for step in range(training_run.steps - 1):
        training_run.step(step, poor, NoiseSource())
    with pytest.raises(BudgetExceeded):
        training_run.step(training_run.steps - 1, poor, NoiseSource())
    assert training_run.may_stop_before(training_run.steps - 1)
    assert not training_run.may_stop_before(2)
    assert training_run.result().sample(4)[0].shape == (4, SIDE, SIDE, 1)


def test_a_mixture_may_be_the_start_and_the_generator_survives_its_file(tmp_path):
    start = Mixture(components=2, iterations=2, subspace_dimensions=6)
    training_run = trained(crosses(), METHOD.model_copy(update={"warm_start": start}), MemoryAccount(UNITS))
    generator = training_run.result()
    generator.save(tmp_path / "generator.safetensors")
    loaded = Generator.load(tmp_path / "generator.safetensors")
    np.testing.assert_array_equal(generator.sample(20, seed=1)[0], loaded.sample(20, seed=1)[0])
    assert training_run.initial_generator().kind == "mixture"


def test_a_wider_spread_leaves_the_model_s_centre():
    start = trained(crosses(), METHOD, MemoryAccount(UNITS)).initial_generator()
    labels = np.zeros(200, dtype=np.int64)
    narrow, wide = (
        propose(
            start.tensors, {"start": "gaussian", "spread": spread, "poses": False}, start.schema, labels,
            np.random.default_rng(0),
        ).std(axis=0).mean()
        for spread in (0.5, 1.0)
    )  # fmt: skip
    assert wide > 1.5 * narrow


def test_samples_lie_between_the_least_and_the_largest_spread():
    start = trained(crosses(), METHOD, MemoryAccount(UNITS)).initial_generator()
    labels = np.zeros(400, dtype=np.int64)

    def widths(settings):
        drawn = propose(
            start.tensors, {"start": "gaussian", "poses": False} | settings, start.schema, labels,
            np.random.default_rng(0),
        )  # fmt: skip
        return drawn.std(axis=0).mean()

    narrow, wide = widths({"spread": 0.5}), widths({"spread": 1.5})
    assert 1.1 * narrow < widths({"spread": 1.5, "least_spread": 0.5}) < 0.95 * wide
    assert widths({"spread": 1.5, "least_spread": 1.5}) == wide


def test_a_spread_below_the_least_one_counts_for_all():
    settings = METHOD.model_copy(update={"least_spread": 1.25, "spread": 1.0}).settings()
    assert (settings["least_spread"], settings["spread"]) == (1.0, 1.0)


def test_surfaces_change_samples_and_generators_saved_without_them_draw_what_they_drew():
    start = trained(crosses(), METHOD, MemoryAccount(UNITS)).initial_generator()
    saved = {"start": "gaussian", "spread": 1.0, "poses": True}
    labels = np.zeros(200, dtype=np.int64)
    old, off, on = (
        propose(start.tensors, saved | added, start.schema, labels, np.random.default_rng(0))
        for added in ({}, {"surfaces": False}, {"surfaces": True})
    )
    np.testing.assert_array_equal(old, off)
    assert 0.05 < np.abs(on - off).mean() < 0.3
    assert on.min() >= 0
    assert on.max() <= 1


def test_a_generator_with_surfaces_survives_its_file(tmp_path):
    generator = trained(crosses(), METHOD, MemoryAccount(UNITS)).result()
    generator.save(tmp_path / "generator.safetensors")
    loaded = Generator.load(tmp_path / "generator.safetensors")
    assert loaded.settings["surfaces"] is True
    np.testing.assert_array_equal(generator.sample(20, seed=1)[0], loaded.sample(20, seed=1)[0])


def test_fewer_samples_than_widths():
    method = METHOD.model_copy(update={"least_spread": 0.5})
    generator = trained(crosses(), method, MemoryAccount(UNITS)).result()
    assert generator.sample(1, seed=0)[0].shape[0] == 1


def test_what_a_record_adds_does_not_depend_on_how_many_others_there_are():
    """Bit by bit, and networks see private images in blocks of one size."""
    dataset = crosses()
    classifier = LastLayerClassifier(dataset.schema, (64, 5), METHOD.hidden_units)
    weights = np.random.default_rng(0).standard_normal((64 * 5**2 + METHOD.hidden_units + 1, 2)).astype(np.float32)
    blocks, features = [], classifier.features
    classifier.features = lambda images: (blocks.append(len(images)), features(images))[1]

    def factors(part: slice):
        train = dataset.train
        rows = Rows(train.images[part], train.labels[part], train.unit_ids[part])
        seen = rows._replace(values=classifier_features(rows, classifier))
        return layer_gradients(seen, Layer(weights, METHOD.error_norm))

    together = factors(slice(None))
    for start, stop in ((0, COUNT - 1), (1, COUNT), (5, 6)):
        for array, all_of_it in zip(factors(slice(start, stop)), together, strict=True):
            assert array.tobytes() == all_of_it[start:stop].tobytes()
    assert set(blocks) == {512}


def test_a_budget_too_small_for_any_gradient_is_refused():
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        METHOD.plan(crosses().schema, 10)
