"""Clipped gradients of critics: golden prices, lengths, rounding towards zero, and the scale of what is released."""

import numpy as np
import pytest
import torch

from datalens_service.mechanisms import ClippedRows
from datalens_service.privacy.accounting import (
    NeighboringRelation,
    epsilon_of_ledger_units,
    limit_units,
    smallest_noise_stddev,
)
from privacy_gate.cases import vote

TEACHERS, IMAGES, DIMENSIONS = 30, 3, 12


def clipped_rows(**changes: object) -> ClippedRows:
    sizes: dict = {"num_teachers": TEACHERS, "images": IMAGES, "dimensions": DIMENSIONS, "clip": 0.5}
    return vote(ClippedRows, **(sizes | changes))


def gradients(scale: float, seed: int = 0) -> torch.Tensor:
    return scale * torch.randn(TEACHERS, IMAGES, DIMENSIONS, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("epsilon", "stddev", "units", "spent"),
    [(1, 3_056_134, 718_513_781_000, 0.9999998), (10, 409_509, 40_017_779_364_500, 9.9999927)],
)
def test_golden_noise_of_a_hundred_batches(epsilon, stddev, units, spent):
    mechanism = clipped_rows(images=100, dimensions=784, noise_stddev=stddev)
    squared = mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT)
    assert squared == 4 * 4096**2
    assert smallest_noise_stddev(squared, 10_000, limit_units(epsilon, 1e-5)) == stddev
    assert mechanism.cost() == units == mechanism.cost(NeighboringRelation.REPLACE_ONE)
    assert epsilon_of_ledger_units(100 * units, 1e-5) == pytest.approx(spent, abs=1e-7)


def test_long_gradients_are_cut_to_one_length_and_short_ones_stay():
    mechanism = clipped_rows()
    long = mechanism.encode(gradients(100.0), torch.Generator()).double().norm(dim=-1)
    assert (long <= mechanism.grid).all()
    assert (long >= mechanism.grid - DIMENSIONS**0.5).all()
    short = mechanism.encode(gradients(0.01), torch.Generator()).numpy()
    np.testing.assert_array_equal(short, np.trunc(gradients(0.01).double().numpy() * (4096 / 0.5)))


def test_a_gradient_along_one_coordinate_attains_the_sensitivity():
    mechanism = clipped_rows(dimensions=1)
    along = torch.full((1, IMAGES, 1), 7.0)
    along[:, 1:] = 0
    distance = mechanism.exact_sum([along]) - mechanism.exact_sum([-along])
    assert int(distance[0, 0]) ** 2 == mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT)


@pytest.mark.parametrize("apart", [1, 3])
def test_what_is_released_has_length_one_where_all_who_answer_agree(apart):
    """With class-pure shards a third of the critics answers for an image."""
    mechanism = clipped_rows(classes_voted_apart=apart)
    block = torch.zeros(TEACHERS, IMAGES, DIMENSIONS)
    block[: TEACHERS // apart, : IMAGES // apart] = gradients(100.0)[:1, : IMAGES // apart]
    released = mechanism.decode(mechanism.exact_sum([block]))
    np.testing.assert_allclose(np.linalg.norm(released[0]), 1, atol=0.01)


def test_unbiased_rounding_drops_rows_that_become_too_long():
    mechanism = clipped_rows(stochastic=True, num_teachers=20_000)
    short = gradients(0.05)[:1].expand(20_000, -1, -1)
    released = mechanism.decode(mechanism.exact_sum([short]))
    np.testing.assert_allclose(released, gradients(0.05)[0] / 0.5, atol=1e-4)
    votes = mechanism.encode(gradients(100.0), torch.Generator().manual_seed(0))
    lengths = mechanism.zero_out_of_bound_rows(votes).double().norm(dim=-1)
    assert (lengths <= mechanism.grid).all()
    assert (lengths == 0).any()
