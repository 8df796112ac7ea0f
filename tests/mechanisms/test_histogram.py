"""Histograms of projected gradients: golden prices, bins, readings, and rows that the guard must drop."""

import numpy as np
import pytest
import torch

from datalens_service.mechanisms import Histogram
from datalens_service.privacy.accounting import NeighboringRelation, limit_units, smallest_noise_stddev
from privacy_gate.cases import vote

TEACHERS, IMAGES, DIMENSIONS = 40, 3, 12


def histogram(**changes: object) -> Histogram:
    sizes: dict = {
        "num_teachers": TEACHERS, "images": IMAGES, "dimensions": DIMENSIONS, "clip": 1.0, "projections": 5, "bins": 8,
    }  # fmt: skip
    return vote(Histogram, **(sizes | changes))


def gradients(seed: int = 0, scale: float = 0.2) -> torch.Tensor:
    return scale * torch.randn(TEACHERS, IMAGES, DIMENSIONS, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("stddev", "units", "images"),
    [
        (1000, 20_000_180_002, {0.2: 188, 1: 3_592, 10: 200_087}),
        (100, 2_001_801_621_460, {1: 35, 10: 1_999}),
        (600, 55_556_944_480, {1: 1_293, 10: 72_030}),
    ],
)
def test_golden_prices_of_the_authors_ten_directions(stddev, units, images):
    one = histogram(images=1, dimensions=784, projections=10, bins=10, weight=1, noise_stddev=stddev)
    assert one.cost() == units
    assert one.cost(NeighboringRelation.REPLACE_ONE) == units
    assert {epsilon: limit_units(epsilon, 1e-5) // units for epsilon in images} == images


@pytest.mark.parametrize(("epsilon", "stddev"), [(1, 42_711), (10, 5_724)])
def test_golden_noise_of_a_thousand_queries(epsilon, stddev):
    one = histogram(images=1, dimensions=64, projections=16, weight=64)
    squared = one.sensitivity_squared(NeighboringRelation.ZERO_OUT)
    assert smallest_noise_stddev(squared, 1000, limit_units(epsilon, 1e-5)) == stddev


def test_every_direction_gets_one_vote_in_the_bin_of_its_projection():
    mechanism = histogram()
    votes = mechanism.encode(gradients(), torch.Generator()).reshape(TEACHERS, IMAGES, 5, 8)
    projected = gradients().double().numpy() @ mechanism._directions()
    edges = np.linspace(-1, 1, 9)[1:-1]
    np.testing.assert_array_equal(votes.argmax(dim=-1).numpy(), np.digitize(projected, edges))
    assert (votes.sum(dim=-1) == 64).all()
    assert (votes.amax(dim=-1) == 64).all()


def test_a_sum_without_noise_counts_every_voter_once_per_direction():
    block = gradients()
    block[3, 1], block[4, 1, 0] = 0.0, float("nan")
    counts = histogram().exact_sum([block]).reshape(IMAGES, 5, 8).sum(axis=-1) / 64
    np.testing.assert_array_equal(counts[:, 0], [TEACHERS, TEACHERS - 2, TEACHERS])


def test_the_mean_of_the_bins_is_the_mean_gradient_within_half_a_bin():
    mechanism = histogram(projections=DIMENSIONS)
    direction = mechanism.decode(mechanism.exact_sum([gradients()]))
    error = (direction - gradients().mean(dim=0).numpy()) @ mechanism._directions()
    assert np.abs(error).max() <= 1 / 8


def test_stochastic_bins_have_no_bias():
    mechanism = histogram(projections=DIMENSIONS, num_teachers=40_000, stochastic=True, bins=4)
    same = gradients()[:1].expand(40_000, -1, -1)
    direction = mechanism.decode(mechanism.exact_sum([same]))
    np.testing.assert_allclose(direction, gradients()[0], atol=0.02)


def test_the_fullest_bin_is_the_authors_reading():
    mechanism = histogram(projections=1, bins=2, reading="argmax", threshold=0.5)
    counts = 64 * np.array([[30, 10], [10, 30], [19, 19]])
    direction = mechanism.decode(counts)
    axis = mechanism._directions()[:, 0]
    np.testing.assert_allclose(direction, np.outer([-0.5, 0.5, 0.0], axis), atol=1e-6)


def test_the_threshold_is_a_share_of_those_who_vote_on_an_image():
    counts = np.zeros((IMAGES, 40), dtype=np.int64)
    counts[:, ::8] = 64 * 15
    assert not histogram(threshold=0.5).decode(counts).any()
    assert histogram(threshold=0.5, classes_voted_apart=2).decode(counts).any()


def test_directions_are_orthonormal_and_change_with_the_seed_alone():
    directions = histogram(seed=3)._directions()
    np.testing.assert_allclose(directions.T @ directions, np.eye(5), atol=1e-12)
    np.testing.assert_array_equal(directions, histogram(seed=3)._directions())
    assert not np.allclose(directions, histogram(seed=4)._directions())


def test_rows_with_a_negative_entry_are_dropped():
    mechanism = histogram()
    votes = torch.zeros(3, IMAGES, 40, dtype=torch.int32)
    votes[0, 0, 0], votes[1, 0, :2] = 64, torch.tensor([64, -1])
    votes[2, 1, 7] = -64
    guarded = mechanism.zero_out_of_bound_rows(votes)
    assert torch.equal(guarded[0], votes[0])
    assert not guarded[1:].any()
