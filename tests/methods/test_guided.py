"""The guided method: labels come from the trained classifier, and samples are as wide as they are asked to be."""

import numpy as np
import pytest

from datalens_service.base.errors import BudgetExceeded, InfeasiblePlan
from datalens_service.data.dataset import Dataset
from datalens_service.mechanisms.private_records import Rows
from datalens_service.methods import Guided, Mixture, Moments
from datalens_service.methods.last_layer.guided import (
    Layer,
    NoisyGradientDescent,
    classifier_features,
    layer_gradients,
)
from datalens_service.models.classifiers.last_layer import LastLayerClassifier
from datalens_service.models.generators.gaussian.guided import propose
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource
from tests.stepped_runs import SteppedRun

from .builders import advance, dataset, start, train

SIDE, COUNT = 8, 1200
UNITS = limit_units(50.0, 1e-4)
METHOD = Guided(
    warm_start=Moments(subspace_dimensions=6), steps=12, samples=400, epochs=3, hidden_units=8, poses=False, spread=1.0
)


def crosses(seed: int = 0) -> Dataset:
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
    return dataset(images, labels)


@pytest.fixture(scope="module")
def trained() -> SteppedRun:
    return train(METHOD, crosses(), UNITS)


def unpack_classifier(training_run: SteppedRun) -> LastLayerClassifier:
    return as_classifier(training_run, training_run.local("descent").average)


def as_classifier(training_run: SteppedRun, head: np.ndarray) -> LastLayerClassifier:
    tensors = training_run.local("classifier").tensors() | {"head": head.astype(np.float32)}
    return LastLayerClassifier.from_tensors(crosses().schema, tensors)


def test_gradients_over_records_correct_the_classifier(trained: SteppedRun):
    """A last layer that knows nothing learns the classes from sums over records alone."""
    data = crosses()
    classifier, weights = trained.local("classifier"), trained.local("weights")
    descent = NoisyGradientDescent(METHOD, data.schema, np.zeros_like(weights))
    train = Rows(data.train.images, data.train.labels, data.train.unit_ids)
    features = train._replace(values=classifier_features(train, classifier))
    layer_sum = METHOD.plan(data.schema, UNITS).releases[-1].mechanism
    pixels = crosses(1).train.images.transpose(0, 3, 1, 2).reshape(COUNT, -1).astype(np.float32) / 255
    truth = crosses(1).train.labels

    def right() -> float:
        return (as_classifier(trained, descent.average).predict(pixels) == truth).mean()

    assert right() < 0.6
    for _ in range(METHOD.steps):
        gradients = layer_gradients(features, Layer(descent.weights, METHOD.error_norm))
        descent.follow(layer_sum.decode(layer_sum.exact_sum(gradients)))
    assert right() > 0.95


def test_samples_carry_the_labels_that_were_asked_for(trained: SteppedRun):
    wanted = np.array([1] * 30 + [0] * 10)
    images, labels = trained.result().sample(40, labels=wanted, seed=3)
    np.testing.assert_array_equal(labels, wanted)
    given = unpack_classifier(trained).predict(images.transpose(0, 3, 1, 2).reshape(40, -1).astype(np.float32) / 255)
    assert (given == wanted).mean() > 0.9
    again, _ = trained.result().sample(40, labels=wanted, seed=3)
    np.testing.assert_array_equal(images, again)


def test_a_class_that_is_seldom_named_still_gets_samples_that_are_named_so(trained: SteppedRun, monkeypatch):
    generator, wanted = trained.result(), np.ones(400, dtype=np.int64)

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
    plan = METHOD.plan(crosses().schema, UNITS)
    training_run = start(METHOD, crosses(), plan)
    poor = MemoryAccount(plan.cost() - plan.releases[-1].mechanism.cost())
    assert not advance(training_run, poor, 2).begin().can_stop
    advance(training_run, poor, plan.steps - 1)
    with pytest.raises(BudgetExceeded):
        training_run.step(plan.steps - 1, poor, NoiseSource())
    assert training_run.begin().can_stop
    assert training_run.result().sample(4)[0].shape == (4, SIDE, SIDE, 1)


def test_a_mixture_may_be_the_start():
    mixture = Mixture(components=2, iterations=2, subspace_dimensions=6)
    training_run = train(METHOD.model_copy(update={"warm_start": mixture}), crosses(), UNITS)
    assert training_run.outcome().start.kind == "mixture"
    assert training_run.result().sample(20)[0].shape == (20, SIDE, SIDE, 1)


def proposed(trained: SteppedRun, **settings: object) -> np.ndarray:
    """Samples of class 0 that are not relabelled yet."""
    model, labels = trained.outcome().start, np.zeros(400, dtype=np.int64)
    stated = {"start": "gaussian", "spread": 1.0, "poses": False} | settings
    return propose(model.tensors, stated, model.schema, labels, np.random.default_rng(0))


def test_samples_lie_between_the_least_and_the_largest_spread(trained: SteppedRun):
    def width(**settings: float) -> float:
        return proposed(trained, **settings).std(axis=0).mean()

    narrow, wide = width(spread=0.5), width(spread=1.5)
    assert wide > 1.5 * narrow
    assert 1.1 * narrow < width(spread=1.5, least_spread=0.5) < 0.95 * wide
    assert width(spread=1.5, least_spread=1.5) == wide


def test_a_spread_below_the_least_one_counts_for_all():
    settings = METHOD.model_copy(update={"least_spread": 1.25, "spread": 1.0}).settings()
    assert (settings["least_spread"], settings["spread"]) == (1.0, 1.0)


def test_surfaces_change_samples_and_generators_saved_without_them_draw_what_they_drew(trained: SteppedRun):
    old, off, on = (proposed(trained, poses=True, **added) for added in ({}, {"surfaces": False}, {"surfaces": True}))
    np.testing.assert_array_equal(old, off)
    assert 0.05 < np.abs(on - off).mean() < 0.3
    assert on.min() >= 0
    assert on.max() <= 1


def test_fewer_samples_than_widths():
    method = METHOD.model_copy(update={"least_spread": 0.5})
    generator = train(method, crosses(), UNITS).result()
    assert generator.sample(1, seed=0)[0].shape[0] == 1


def test_what_a_record_adds_does_not_depend_on_how_many_others_there_are():
    """Bit by bit, and networks see private images in blocks of one size."""
    train = crosses().train
    classifier = LastLayerClassifier(crosses().schema, (64, 5), METHOD.hidden_units)
    weights = np.random.default_rng(0).standard_normal((64 * 5**2 + METHOD.hidden_units + 1, 2)).astype(np.float32)
    blocks, features = [], classifier.features
    classifier.features = lambda images: (blocks.append(len(images)), features(images))[1]

    def factors(part: slice):
        rows = Rows(train.images[part], train.labels[part], train.unit_ids[part])
        seen = rows._replace(values=classifier_features(rows, classifier))
        return layer_gradients(seen, Layer(weights, METHOD.error_norm))

    together = factors(slice(None))
    for first, stop in ((0, COUNT - 1), (1, COUNT), (5, 6)):
        for array, all_of_it in zip(factors(slice(first, stop)), together, strict=True):
            assert array.tobytes() == all_of_it[first:stop].tobytes()
    assert set(blocks) == {512}


def test_a_budget_too_small_for_any_gradient_is_refused():
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        METHOD.plan(crosses().schema, 10)
