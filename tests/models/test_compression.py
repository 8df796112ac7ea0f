"""Sparse gradients: the largest coordinates, never more energy than named, one row at a time."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from datalens_service.methods.descent.unit_gradients import keep_energy, keep_largest

KEEP = [0.6, 0.7, 0.8, 1.0]


def rows() -> torch.Tensor:
    """Gaussian, heavy-tailed, tiny, huge, equal, one coordinate, zero."""
    rng = np.random.default_rng(2)
    many = [rng.normal(size=(40, 60)), rng.standard_cauchy((40, 60)), 1e-20 * rng.normal(size=(4, 60))]
    few = [1e18 * rng.normal(size=(4, 60)), np.ones((1, 60)), np.eye(60)[:1], np.zeros((1, 60))]
    return torch.from_numpy(np.concatenate([*many, *few]).astype(np.float32))


def energy(row: torch.Tensor) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in row), Fraction(0))


@pytest.mark.parametrize("share", KEEP)
def test_the_squared_norm_that_stays_is_at_most_the_share(share: float) -> None:
    for before, after in zip(rows(), keep_energy(rows(), share), strict=True):
        assert energy(after) <= Fraction(share) * energy(before) * Fraction(1 + 1e-9)


def test_what_stays_is_a_prefix_of_the_order_by_square() -> None:
    for before, after in zip(rows(), keep_energy(rows(), 0.7), strict=True):
        stays = after != 0
        if stays.any():
            assert before[stays].abs().min() > before[~stays].abs().max()
        torch.testing.assert_close(after[stays], before[stays], rtol=0, atol=0)


def test_most_of_the_share_is_used() -> None:
    wide = torch.randn(8, 20_000, generator=torch.Generator().manual_seed(1))
    used = keep_energy(wide, 0.7).square().sum(dim=1) / wide.square().sum(dim=1)
    assert float(used.min()) > 0.66


@pytest.mark.parametrize("share", KEEP)
def test_what_is_left_out_would_be_too_much(share: float) -> None:
    """Together with all squares within a sixteenth of the largest one that is left out: they stay or go together."""
    for before, after in zip(rows()[:80], keep_energy(rows()[:80], share), strict=True):
        left_out = before[after == 0].square()
        if left_out.any():
            next_ones = left_out[left_out >= left_out.max() / 1.07]
            added = energy(after) + sum(Fraction(float(square)) for square in next_ones)
            assert added > Fraction(share) * energy(before) * Fraction(1 - 1e-6)


def test_order_signs_and_other_rows_change_nothing() -> None:
    values = rows()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(3))
    signs = torch.where(torch.arange(60) % 2 == 0, 1.0, -1.0)
    torch.testing.assert_close(keep_energy(values[:, order] * signs, 0.8), keep_energy(values, 0.8)[:, order] * signs)
    alone = torch.cat([keep_energy(row[None], 0.8) for row in values])
    torch.testing.assert_close(alone, keep_energy(values, 0.8), rtol=0, atol=0)


def test_rows_that_are_not_finite_become_zero() -> None:
    values = torch.tensor([[1.0, float("nan")], [float("inf"), 1.0], [1.0, 1.0]])
    assert keep_energy(values, 1.0).tolist() == [[0, 0], [0, 0], [1, 1]]


def test_the_largest_coordinates_stay() -> None:
    assert keep_largest(torch.tensor([[3.0, -5.0, 1.0, 4.0]]), 2).tolist() == [[0, -5, 0, 4]]
