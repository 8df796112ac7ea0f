"""Noisy directions: the sampler's law, and the claim of docs/mechanisms/von_mises_fisher.md by quadrature."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from datalens_service.base.errors import ContributionFailed, InvalidInput, InvalidSpec
from datalens_service.mechanisms import GradientChunk, VonMisesFisherSum
from datalens_service.mechanisms.von_mises_fisher import GRID, unit_directions
from datalens_service.methods.descent.noisy_directions import mean_cosine
from datalens_service.privacy.accounting import NeighboringRelation, gaussian_delta
from datalens_service.privacy.partitioned_passes import PartitionedPasses
from datalens_service.privacy.randomness import NoiseSource, _uniforms
from datalens_service.privacy.von_mises_fisher import draw_cosines

GOLDEN_COSINES = [
    (26_010, 250.0, 9.6108e-3),
    (61_706, 0.5, 8.10294e-6),
    (61_706, 250.0, 4.051403e-3),
    (61_706, 150_000.0, 0.8152498),
    (1_000, 250.0, 0.2360902),
]


CHANCE = 1e-10
"""Probability of a false alarm of one comparison: there is no seed, and the suite runs often."""


def log_density(cosines: np.ndarray, dimensions: int, tilt: float, beside: float = 0.0) -> np.ndarray:
    """Of uᵀy up to a constant, for a mean direction with κ-weighted parts `tilt` along u and `beside` across it."""
    across = np.sqrt(np.maximum(0.0, 1 - cosines**2))
    order = (dimensions - 3) / 2
    argument = beside * across
    bessel = np.log(special.ive(order, argument)) + argument - order * np.log(argument) if beside else 0.0
    return (dimensions - 3) / 2 * np.log1p(-(cosines**2)) + tilt * cosines + bessel


def masses(log_weights: np.ndarray) -> np.ndarray:
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()


def cosine_grid(dimensions: int) -> np.ndarray:
    width = min(1.0, 40 / math.sqrt(dimensions))
    cells = 400_001
    return width * ((np.arange(cells) + 0.5) / cells * 2 - 1)


def largest_delta(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(
        max(
            np.maximum(first - math.exp(epsilon) * second, 0).sum(),
            np.maximum(second - math.exp(epsilon) * first, 0).sum(),
        )
    )


@pytest.mark.parametrize(("dimensions", "kappa", "expected"), GOLDEN_COSINES)
def test_mean_cosines_are_the_golden_ones(dimensions, kappa, expected):
    cosines = draw_cosines(50_000, dimensions, kappa, _uniforms)
    assert abs(cosines.mean() - expected) < 6.5 * cosines.std() / math.sqrt(len(cosines))
    assert mean_cosine(kappa, dimensions) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("dimensions", "kappa"), [(3, 0.0), (3, 5.0), (100, 40.0), (61_706, 250.0)])
def test_cosines_have_the_law_of_the_density(dimensions, kappa):
    grid = np.linspace(-1, 1, 400_001) if dimensions < 1000 else np.linspace(-0.05, 0.05, 400_001)
    with np.errstate(divide="ignore"):
        law = np.cumsum(masses(log_density(grid, dimensions, kappa) if dimensions > 3 else kappa * grid))
    sample = draw_cosines(20_000, dimensions, kappa, _uniforms)
    assert stats.kstest(sample, lambda t: np.interp(t, grid, law)).pvalue > CHANCE
    assert stats.kstest(sample + 0.3 / math.sqrt(dimensions), lambda t: np.interp(t, grid, law)).pvalue < CHANCE


def test_directions_agree_with_an_independent_sampler():
    mean = np.array([0.6, 0.0, 0.8, 0.0, 0.0])
    ours = NoiseSource().directions(np.tile(mean, (20_000, 1)), 4.0)
    theirs = stats.vonmises_fisher(mean, 4.0).rvs(20_000, random_state=1)
    assert np.abs(np.linalg.norm(ours, axis=1) - 1).max() < 1e-12
    for axis in range(5):
        assert stats.ks_2samp(ours[:, axis], theirs[:, axis]).pvalue > CHANCE


def test_a_unit_without_a_direction_gets_a_uniform_one():
    drawn = NoiseSource().directions(np.zeros((20_000, 7)), 1e6)
    assert np.abs(np.linalg.norm(drawn, axis=1) - 1).max() < 1e-12
    assert np.abs(drawn.mean(axis=0)).max() < 6.5 / math.sqrt(7 * 20_000)
    assert np.abs(np.cov(drawn.T) * 7 - np.eye(7)).max() < 0.1


@pytest.mark.parametrize(
    "means", [np.ones((2, 5), dtype=np.float32), np.full((2, 5), 0.5), np.zeros((2, 2)), np.zeros(5)]
)
def test_what_is_no_direction_in_float64_is_refused(means):
    with pytest.raises(InvalidInput):
        NoiseSource().directions(means, 1.0)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("dimensions", [4, 7, 30, 1000, 26_010])
@pytest.mark.parametrize("strength", [0.2, 1.0, 3.0])
def test_one_direction_tells_no_more_than_the_gaussian_that_is_charged(dimensions, strength, epsilon):
    kappa = strength * math.sqrt(dimensions - 3)
    grid = cosine_grid(dimensions)
    uniform, drawn, opposite = (masses(log_density(grid, dimensions, tilt)) for tilt in (0.0, kappa, -kappa))
    for pair, mu in (((uniform, drawn), strength), ((opposite, drawn), 2 * strength)):
        assert largest_delta(*pair, epsilon) <= gaussian_delta(mu, epsilon) + 1e-7
    if dimensions >= 1000 and epsilon <= strength:
        assert largest_delta(uniform, drawn, epsilon) >= 0.97 * gaussian_delta(strength, epsilon), "and hardly less"


@pytest.mark.parametrize("angle", [0.1, 0.7, 1.5, 2.5])
@pytest.mark.parametrize("dimensions", [4, 11, 101])
def test_two_directions_at_an_angle_cost_the_distance_between_them(dimensions, angle):
    kappa = 1.5 * math.sqrt(dimensions - 3)
    along, across = kappa * math.sin(angle / 2), kappa * math.cos(angle / 2)
    grid = cosine_grid(dimensions)
    pair = [masses(log_density(grid, dimensions, sign * along, across)) for sign in (1, -1)]
    mu = 2 * along / math.sqrt(dimensions - 3)
    for epsilon in (0.0, 0.2, 1.0, 2.0):
        assert largest_delta(*pair, epsilon) <= gaussian_delta(mu, epsilon) + 1e-7


def test_the_price_covers_the_noise_that_is_drawn():
    for dimensions, stddev in ((4, 100), (26_010, 40_000), (61_706, 2**26)):
        mechanism = unpriced(dimensions, stddev)
        assert mechanism.kappa / math.sqrt(dimensions - 3) <= 1 / mechanism.noise_multiplier()


def directions(units: int = 6, passes: int = 2, noise_stddev: int = 1_000_000) -> VonMisesFisherSum:
    mechanism = unpriced(5, noise_stddev)
    multiplier = mechanism.noise_multiplier()
    priced = PartitionedPasses.priced(multiplier, num_units=units, batches=1, passes=passes)
    return mechanism.model_copy(update={"partition": priced})


def unpriced(dimensions: int, noise_stddev: int) -> VonMisesFisherSum:
    partition = PartitionedPasses(num_units=1, batches=1, passes=1, ledger_units_zero_out=1, ledger_units_replace_one=1)
    return VonMisesFisherSum(dimensions=dimensions, partition=partition, noise_stddev=noise_stddev)


def chunk(rows: list[list[float]], units: list[int]) -> GradientChunk:
    return GradientChunk(torch.tensor(rows), torch.tensor(units))


def test_units_that_are_not_in_the_batch_are_refused():
    mechanism = directions(units=1)
    rows = chunk([[1.0, 0, 0, 0, 0]] * 2, [0, 1])
    with pytest.raises(ContributionFailed, match="more units"):
        mechanism.noisy_sum([rows], np.array([True]), NoiseSource())


def test_a_unit_of_several_records_has_the_direction_of_its_mean():
    mechanism = directions()
    both = chunk([[2.0, 0, 0, 0, 0], [0.0, 2, 0, 0, 0]], [4, 4])
    expected = np.rint(np.array([math.sqrt(0.5)] * 2 + [0, 0, 0]) * GRID)
    np.testing.assert_array_equal(mechanism.exact_sum([both]), expected)


def test_lengths_from_the_smallest_to_the_largest_number_become_one():
    rows = np.array([[1e308, 1e308], [5e-324, 0], [1e-200, 1e-200], [np.inf, 1], [0, 0]])
    lengths = np.linalg.norm(unit_directions(rows), axis=1)
    np.testing.assert_allclose(lengths, [1, 1, 1, 0, 0])


def test_a_price_that_is_not_that_of_the_passes_is_refused():
    mechanism = directions(passes=3)
    for stated in (mechanism.partition.ledger_units_zero_out - 1, mechanism.partition.ledger_units_zero_out + 1):
        other = mechanism.partition.model_copy(update={"ledger_units_zero_out": stated})
        with pytest.raises(InvalidSpec, match="3 passes cost"):
            other.recompute_price(mechanism.noise_multiplier())
    mechanism.partition.recompute_price(mechanism.noise_multiplier())
    assert mechanism.cost() >= 3 * 10**15 / mechanism.noise_multiplier() ** 2
    assert mechanism.cost(NeighboringRelation.REPLACE_ONE) >= 4 * mechanism.cost() - 4


def test_every_unit_is_in_one_batch_of_a_pass():
    block = PartitionedPasses(num_units=103, batches=10, passes=2, ledger_units_zero_out=1, ledger_units_replace_one=1)
    batches = [block.draw_batch(draw, NoiseSource()) for draw in range(block.draws)]
    for first in (0, 10):
        assert (np.sum(batches[first : first + 10], axis=0) == 1).all()
    assert {int(batch.sum()) for batch in batches} == {10, 11}
    assert np.flatnonzero(batches[0])[:3].tolist() != [0, 1, 2], "uploads may be sorted by class"
    with pytest.raises(InvalidSpec):
        block.draw_batch(block.draws, NoiseSource())
