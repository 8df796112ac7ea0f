"""k-level votes against a plain NumPy reading of Algorithms 5 and 6 of DataLens (CCS 2021)."""

import numpy as np
import pytest
import scipy.fft
import torch
from pydantic import ValidationError

from datalens_service.mechanisms import KLevel
from datalens_service.privacy.accounting import NeighboringRelation, cost_ledger_units
from privacy_gate.cases import vote

TEACHERS, IMAGES, DIMENSIONS = 10, 4, 25


def klevel(**changes: object) -> KLevel:
    sizes: dict = {"num_teachers": 1000, "images": IMAGES, "dimensions": DIMENSIONS, "clip": 0.5, "levels": 9}
    return vote(KLevel, **(sizes | changes))


def gradients(seed: int, teachers: int = TEACHERS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((teachers, IMAGES, DIMENSIONS)) * 0.3


def rotated(mechanism: KLevel, values: np.ndarray) -> np.ndarray:
    """In units of the clipping bound, in [−1, 1]."""
    signs = np.random.default_rng(mechanism.seed).choice([-1.0, 1.0], size=DIMENSIONS)
    clipped = np.clip(values, -mechanism.clip, mechanism.clip)
    return np.clip(scipy.fft.dct(clipped * signs, norm="ortho", axis=-1) / mechanism.clip, -1, 1)


@pytest.mark.parametrize("levels", [2, 3, 9, 64])
def test_votes_are_the_nearest_levels_of_the_rotated_gradient(levels):
    mechanism = klevel(levels=levels)
    votes = mechanism.encode(torch.from_numpy(gradients(0)), torch.Generator()).numpy()
    ladder = np.arange(-(levels - 1), levels, 2)
    wanted = rotated(mechanism, gradients(0)) * (levels - 1)
    expected = ladder[np.abs(wanted[..., None] - ladder).argmin(axis=-1)]
    np.testing.assert_array_equal(votes, expected)


def test_stochastic_rounding_is_unbiased_and_takes_a_neighbouring_level():
    mechanism = klevel(stochastic=True, levels=4)
    one = torch.from_numpy(gradients(1, teachers=1)).expand(40_000, -1, -1)
    votes = mechanism.encode(one, torch.Generator().manual_seed(0)).double().numpy()
    wanted = rotated(mechanism, gradients(1, teachers=1))[0] * 3
    np.testing.assert_allclose(votes.mean(axis=0), wanted, atol=0.03)
    assert np.abs(votes - wanted).max() < 2 + 1e-6


def test_the_rotation_is_undone():
    """Many teachers who agree: the mean of their votes points where their gradient does."""
    mechanism = klevel(stochastic=True, clip=5.0)
    one = gradients(2, teachers=1)
    blocks = [torch.from_numpy(one).expand(100, -1, -1) for _ in range(10)]
    direction = mechanism.decode(mechanism.exact_sum(blocks))
    assert direction.dtype == np.float32
    np.testing.assert_allclose(direction * 5.0, one[0], atol=0.1)


def test_threshold_is_a_fraction_of_the_teachers():
    mechanism = klevel(clip=5.0, threshold=0.05)
    blocks = [torch.from_numpy(gradients(2, teachers=1)).expand(1000, -1, -1)]
    sums = mechanism.model_copy(update={"threshold": "none"}).decode(mechanism.exact_sum(blocks))
    np.testing.assert_array_equal(mechanism.decode(mechanism.exact_sum(blocks)), np.sign(sums) * (np.abs(sums) >= 0.05))


def test_a_smaller_row_norm_costs_less_and_loses_almost_no_row():
    whole = klevel(dimensions=400, levels=16, stochastic=True, clip=1.0)
    short = klevel(dimensions=400, levels=16, stochastic=True, clip=1.0, row_norm_squared=5_000)
    assert whole.row_bound_squared == 400 * 15**2
    assert short.row_bound_squared == 5_000
    block = torch.randn(500, IMAGES, 400, generator=torch.Generator().manual_seed(3))
    votes = short.encode(block, torch.Generator().manual_seed(4))
    length_squared = votes.double().square().sum(dim=-1)
    assert (length_squared <= 5_000).double().mean() > 0.99
    assert length_squared.mean() > 0.75 * 5_000, "the bound is used"
    assert short.cost() == IMAGES * cost_ledger_units(4 * 5_000, 500)


def test_a_row_norm_above_the_natural_one_changes_nothing():
    block = [torch.from_numpy(gradients(5))]
    np.testing.assert_array_equal(klevel().exact_sum(block), klevel(row_norm_squared=10**9).exact_sum(block))
    assert klevel(row_norm_squared=10**9).cost() == klevel().cost()


def test_a_row_norm_that_rounding_alone_would_pass_is_refused():
    with pytest.raises(ValidationError, match="row_norm_squared"):
        klevel(row_norm_squared=DIMENSIONS + 8)


def test_sensitivity_is_stated_for_both_relations():
    for relation in NeighboringRelation:
        assert klevel().sensitivity_squared(relation) == (2 * 8) ** 2 * DIMENSIONS
