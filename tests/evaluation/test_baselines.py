"""The baselines without a generator: noise fits the job's budget, a record moves it as far as was said."""

import math

import numpy as np
import pytest

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema, Split
from datalens_service.evaluation.metrics import baselines
from datalens_service.evaluation.metrics.baselines import (
    Averages,
    choose_side,
    class_average_score,
    nearest_average,
    noisy_averages,
)
from datalens_service.evaluation.metrics.outcome import Score
from datalens_service.privacy.accounting import mu_for_epsilon
from tests.evaluation.conftest import CLASS_NAMES, SIDE, split

BUDGET = {"epsilon": 1.0, "delta": 1e-5, "seed": 0}


def schema(units: int, side: int = SIDE, channels: int = 1, names: tuple[str, ...] = CLASS_NAMES) -> Schema:
    return Schema(channels=channels, height=side, width=side, class_names=names, num_units=units)


class Recorder:
    """In place of a random generator: remembers the scale of the noise and adds none."""

    def normal(self, location, scale, size):
        self.location, self.scale, self.size = location, scale, size
        return np.zeros(size)


def test_without_noise_it_is_the_average_of_unit_vectors_without_their_mean():
    train = split(120, 1)
    vectors = train.images.reshape(120, -1).astype(float)
    vectors -= vectors.mean(axis=1, keepdims=True)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.stack([vectors[train.labels == label].mean(axis=0) for label in range(3)])
    found = noisy_averages(train, 3, side=SIDE, mu=1.0, rng=Recorder()).vectors
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("side", [8, SIDE])
@pytest.mark.parametrize("mu", [0.1, 0.26805112, 2.0])
def test_noise_is_sensitivity_over_mu_on_every_number(mu, side):
    train, recorder = split(120, 1), Recorder()
    noisy_averages(train, 3, side=side, mu=mu, rng=recorder)
    assert recorder.size == (3, 1 + side * side)
    whole = baselines._counts_and_sums(train, 3, side)
    moves = []
    for index in range(len(train.labels)):
        keep = np.arange(len(train.labels)) != index
        neighbour = baselines._counts_and_sums(Split(train.images[keep], train.labels[keep]), 3, side)
        moves.append(np.linalg.norm(whole - neighbour))
    # Attained by every record and exceeded by none; a scale 1 % off would fail either way.
    assert max(moves) == pytest.approx(min(moves), rel=1e-9)
    assert recorder.scale == pytest.approx(max(moves) / mu, rel=1e-9)


def test_epsilon_and_delta_and_records_of_a_person_reach_the_noise(monkeypatch):
    asked = []

    def averages(train, classes, side, mu, rng):
        asked.append(mu)
        return Averages(np.eye(3, side * side), np.zeros(3))

    monkeypatch.setattr(baselines, "noisy_averages", averages)
    class_average_score(split(30, 1), split(30, 2), schema(30), **BUDGET)
    several = schema(30).model_copy(update={"records_per_unit": 4})
    class_average_score(split(30, 1), split(30, 2), several, **BUDGET)
    assert (
        asked == [mu_for_epsilon(1.0, 1e-5), mu_for_epsilon(1.0, 1e-5) / 4] == pytest.approx([0.26805112, 0.06701278])
    )


def test_the_size_is_chosen_by_public_numbers_and_grows_with_the_budget():
    grey = schema(2_000, side=28, names=tuple("0123456789"))
    sides = [choose_side(grey, mu) for mu in (0.01, 0.1, 0.3, 1.0, 10.0)]
    assert sides == sorted(sides)
    assert set(sides) == {8, 16, 28}
    assert choose_side(schema(100, side=6), 0.001) == 6
    assert choose_side(schema(1_651, side=64, channels=3, names=tuple("0123456789")), 0.268) < 64


def test_noise_in_a_squared_length_is_taken_away():
    """Two averages at the same distance, one of them noisier: without that the noisy one would never be named."""
    rng = np.random.default_rng(0)
    images = split(200, 3).images
    exact = Averages(np.zeros((2, SIDE * SIDE)), np.zeros(2))
    noisy = exact.vectors + rng.normal(size=(2, SIDE * SIDE)) * [[1.0], [3.0]]
    noise = SIDE * SIDE * np.array([1.0, 9.0])
    assert set(nearest_average(Averages(noisy, np.zeros(2)), images, SIDE)) == {0}
    squares = (noisy**2).sum(axis=1) - noise
    assert np.abs(squares).max() < 0.3 * noise.max()


def test_accuracy_falls_with_the_budget_to_guessing():
    train, test = split(600, 1), split(300, 2)
    generous = class_average_score(train, test, schema(600), epsilon=10.0, delta=1e-5, seed=0)
    tiny = [class_average_score(train, test, schema(600), epsilon=1e-4, delta=1e-9, seed=s).accuracy for s in range(20)]
    assert generous == (100, 100)
    assert 15 < np.mean(tiny) < 55


def test_a_seed_repeats_and_another_differs():
    train, test = split(60, 1), split(300, 2)
    budget = {"epsilon": 0.3, "delta": 1e-5}
    values = [class_average_score(train, test, schema(60), seed=seed, **budget) for seed in (0, 0, 1, 2)]
    assert values[0] == values[1]
    assert len(set(values)) > 1


def test_black_images_and_missing_classes_are_no_trouble():
    black = Split(np.zeros((5, 4, 4, 1), np.uint8), np.zeros(5, np.int64))
    averages = noisy_averages(black, 3, side=4, mu=1.0, rng=Recorder())
    assert np.isfinite(averages.vectors).all()
    assert not averages.vectors.any()


def test_a_mean_over_classes_counts_rare_ones_alike():
    score = Score.from_labels(np.zeros(10, np.int64), np.array([0] * 9 + [2]))
    assert score == (90.0, 50.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf])
def test_an_impossible_budget_is_refused(epsilon):
    with pytest.raises(InvalidSpec):
        class_average_score(split(9, 1), split(9, 2), schema(9), epsilon=epsilon, delta=1e-5, seed=0)
