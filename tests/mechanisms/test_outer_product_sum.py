"""Weighted triangles of outer products: golden prices, plans of before, and the noise that an entry keeps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from datalens_service.mechanisms import OuterProductSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.privacy.accounting import NeighboringRelation


def weighted(on: int, beside: int) -> OuterProductSum:
    return OuterProductSum(num_groups=1, dimensions=400, weights=(on, beside), noise_stddev=30_000_000)


@pytest.mark.parametrize(
    ("weights", "times"), [((1, 1), Fraction(1)), ((5, 7), Fraction(25)), ((2, 3), Fraction(9, 2)), ((5, 8), 32)]
)
def test_golden_sensitivities_of_weights(weights: tuple[int, int], times: Fraction) -> None:
    """The radius is 2,048 steps of the grid, 10 for rounding 400 numbers, and one."""
    mechanism = weighted(*weights)
    assert mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT) == times * 2059**4
    assert mechanism.sensitivity_squared(NeighboringRelation.REPLACE_ONE) == 2 * times * 2059**4


@pytest.mark.parametrize("weights", [(1, 1), (5, 7), (2, 3), (5, 8), (16, 1)])
def test_no_vector_is_longer_than_its_price(weights: tuple[int, int]) -> None:
    """Along an axis the diagonal has all of the length, on a diagonal of space nearly nothing."""
    rng = np.random.default_rng(0)
    mechanism = OuterProductSum(num_groups=1, dimensions=16, weights=weights, noise_stddev=30_000_000)
    rows = np.concatenate([np.eye(16), np.ones((1, 16)) / 4, rng.standard_normal((200, 16))])
    bound = mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT)
    for row in rows / np.linalg.norm(rows, axis=1, keepdims=True):
        one = GroupedVectors(row[None], np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        assert sum(int(entry) ** 2 for entry in mechanism.exact_sum(one).ravel()) <= bound


def test_weights_are_taken_off_again() -> None:
    rows = np.random.default_rng(0).standard_normal((50, 3)) / 4
    every = GroupedVectors(rows, np.zeros(50, dtype=np.int64), np.arange(50))
    mechanism = OuterProductSum(num_groups=1, dimensions=3, weights=(5, 7), noise_stddev=30_000_000)
    np.testing.assert_allclose(mechanism.decode(mechanism.exact_sum(every))[0], rows.T @ rows, atol=0.05)


def test_a_plan_of_before_there_were_weights_keeps_its_words_and_price() -> None:
    stored = {"num_groups": 1, "dimensions": 9, "noise_stddev": 10_000_000, "name": "outer_product_sum"}
    mechanism = OuterProductSum.model_validate(stored)
    assert "weights" not in mechanism.model_dump_json()
    assert mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT) == (2048 + 2) ** 4
