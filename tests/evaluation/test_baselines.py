"""The baseline of noisy class averages: noise fits the job's budget, a record moves it as far as was said."""

import math

import numpy as np
import pytest

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Split
from datalens_service.evaluation.metrics import baselines
from datalens_service.evaluation.metrics.baselines import class_average_accuracy, noisy_averages
from datalens_service.privacy.accounting import mu_for_epsilon
from tests.evaluation.conftest import split


class Recorder:
    """In place of a random generator: remembers the scale of the noise and adds none."""

    def normal(self, location, scale, size):
        self.location, self.scale, self.size = location, scale, size
        return np.zeros(size)


def test_without_noise_it_is_the_average_of_unit_vectors():
    train = split(120, 1)
    vectors = train.images.reshape(120, -1).astype(float)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = np.stack([vectors[train.labels == label].mean(axis=0) for label in range(3)])
    np.testing.assert_allclose(noisy_averages(train, 3, mu=1.0, rng=Recorder()), expected, rtol=1e-12)


@pytest.mark.parametrize("mu", [0.1, 0.26805112, 2.0])
def test_noise_is_sensitivity_over_mu_on_every_number(mu):
    train, recorder = split(120, 1), Recorder()
    noisy_averages(train, 3, mu=mu, rng=recorder)
    assert recorder.size == (3, 1 + train.images[0].size)
    whole = baselines._counts_and_sums(train, 3)
    moves = []
    for index in range(len(train.labels)):
        keep = np.arange(len(train.labels)) != index
        neighbour = baselines._counts_and_sums(Split(train.images[keep], train.labels[keep]), 3)
        moves.append(np.linalg.norm(whole - neighbour))
    # Attained by every record and exceeded by none; a scale 1 % off would fail either way.
    assert max(moves) == pytest.approx(min(moves), rel=1e-9)
    assert recorder.scale == pytest.approx(max(moves) / mu, rel=1e-9)


def test_epsilon_and_delta_reach_the_noise(monkeypatch):
    asked = []
    monkeypatch.setattr(baselines, "noisy_averages", lambda train, classes, mu, rng: asked.append(mu) or np.eye(3, 144))
    class_average_accuracy(split(30, 1), split(30, 2), 3, epsilon=1.0, delta=1e-5, seed=0)
    assert asked == [mu_for_epsilon(1.0, 1e-5)] == [pytest.approx(0.26805112)]


def test_accuracy_falls_with_the_budget_to_guessing():
    train, test = split(600, 1), split(300, 2)
    generous = class_average_accuracy(train, test, 3, epsilon=10.0, delta=1e-5, seed=0)
    tiny = np.mean([class_average_accuracy(train, test, 3, epsilon=1e-4, delta=1e-9, seed=s) for s in range(20)])
    assert generous == 100
    assert 15 < tiny < 55


def test_a_seed_repeats_and_another_differs():
    train, test = split(60, 1), split(300, 2)
    values = [class_average_accuracy(train, test, 3, epsilon=0.3, delta=1e-5, seed=seed) for seed in (0, 0, 1, 2)]
    assert values[0] == values[1]
    assert len(set(values)) > 1


def test_black_images_and_missing_classes_are_no_trouble():
    black = Split(np.zeros((5, 4, 4, 1), np.uint8), np.zeros(5, np.int64))
    averages = noisy_averages(black, 3, mu=1.0, rng=Recorder())
    assert np.isfinite(averages).all()
    assert not averages.any()


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf])
def test_an_impossible_budget_is_refused(epsilon):
    with pytest.raises(InvalidSpec):
        class_average_accuracy(split(9, 1), split(9, 2), 3, epsilon=epsilon, delta=1e-5, seed=0)
