"""Accuracy as a noisy count: its price, what it counts, and how far off it is."""

import numpy as np

from datalens_service.mechanisms import AccuracyCount
from datalens_service.mechanisms.accuracy import DEFAULT_NOISE_STDDEV, Answers
from datalens_service.privacy.accounting import NeighboringRelation, limit_units


def count(num_units: int = 10_000) -> AccuracyCount:
    return AccuracyCount(num_units=num_units, noise_stddev=DEFAULT_NOISE_STDDEV)


def test_it_costs_what_the_page_says():
    assert [count().cost(relation) for relation in NeighboringRelation] == [100_090_081_073] * 2
    assert 0.0013 < count().cost() / limit_units(1.0, 1e-5) < 0.0014 + 1e-5


def test_the_first_record_of_a_unit_speaks_for_it():
    units = np.array([7, 7, 3, 7, 3, 9])
    right = np.array([True, False, False, True, True, True])
    assert count(3).exact_sum(Answers(right, units)).tolist() == [2]


def test_a_share_stays_a_share():
    assert [count(200).decode(np.array([noisy])) for noisy in (-40, 50, 201)] == [0.0, 25.0, 100.0]
