"""Compressed gradients as a run of `dp_sgd` contributes them: their length on the grid, and the noise on all places."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy import stats

from datalens_service.mechanisms import GradientChunk
from datalens_service.methods import DpSgd
from datalens_service.methods.descent.dp_sgd_run import Descent
from datalens_service.methods.descent.unit_gradients import compress, keep_energy, keep_largest
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource

from .builders import dataset, start

SIDE = 10
COUNT = 2_500
"""Of each of four clipping norms: ten thousand rows together."""

WEIGHTS, BIASES = 2 * SIDE**2, 2
DIMENSIONS = WEIGHTS + BIASES
KEEP = 0.6


def started(keep: float, clip_norm: float) -> Descent:
    method = DpSgd(architecture="linear", steps=1, clip_norm=clip_norm, compression="normtopk", keep=keep)
    data = dataset(np.zeros((2, SIDE, SIDE, 1)), np.zeros(2, dtype=np.int64))
    return start(method, data, limit_units(8.0, 1e-4)).local("descent")


def contributed(training_run: Descent, rows: torch.Tensor) -> np.ndarray:
    """int64 rows on the grid, one for each gradient."""
    compressed = compress(rows, training_run._parameters, training_run.gradients.tensor_sizes)
    return training_run.mechanism.on_grid(compressed).numpy().astype(np.int64)


def adversarial_rows() -> torch.Tensor:
    """Huge, tiny, subnormal, along one axis, all coordinates alike, not finite."""
    rng = np.random.default_rng(0)
    rows = torch.tensor(rng.standard_normal((COUNT, DIMENSIONS)), dtype=torch.float32)
    rows *= torch.tensor(rng.choice([1e-44, 1e-38, 1e-6, 1.0, 1e6, 1e37], size=(COUNT, 1)), dtype=torch.float32)
    rows[1::9] = 0
    rows[1::9, 3] = 1e30
    rows[2::9] = torch.tensor(rng.choice([1e-6, 1.0, 1e6], size=(len(rows[2::9]), 1)), dtype=torch.float32)
    rows[4::9, 0] = float("nan")
    rows[5::9, 1] = float("-inf")
    return rows


@pytest.mark.parametrize("clip_norm", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("keep", [KEEP, 1.0])
def test_no_contribution_is_longer_than_the_radius(keep: float, clip_norm: float) -> None:
    training_run = started(keep, clip_norm)
    rows = contributed(training_run, adversarial_rows())
    squares = (rows**2).sum(axis=1)
    assert squares.max() <= training_run.mechanism.radius**2
    assert not rows[4::9].any()
    assert not rows[5::9].any()
    assert training_run.mechanism.clip_norm == pytest.approx(math.sqrt(keep) * clip_norm)


def test_a_contribution_reaches_the_radius() -> None:
    """Along one axis where all is kept; with equal coordinates that hold the share, and equal smaller ones."""
    one_axis = torch.zeros(1, DIMENSIONS)
    one_axis[0, 5] = -3.0
    whole = started(1.0, 0.5)
    assert math.sqrt((contributed(whole, one_axis) ** 2).sum()) >= 0.999 * whole.mechanism.radius
    half = WEIGHTS // 2
    two_sizes = torch.full((1, DIMENSIONS), math.sqrt(1 - 0.999 * KEEP))
    two_sizes[0, :half] = math.sqrt(0.999 * KEEP)
    two_sizes[0, WEIGHTS:] = 0
    compressed = started(KEEP, 0.5)
    row = contributed(compressed, two_sizes)
    assert np.count_nonzero(row) == half
    assert math.sqrt((row**2).sum()) >= 0.98 * compressed.mechanism.radius


def test_coordinates_that_are_all_equal_stay_or_go_together() -> None:
    equal = torch.ones(1, DIMENSIONS)
    assert not contributed(started(KEEP, 1.0), equal).any()
    assert contributed(started(1.0, 1.0), equal).all()


def test_each_tensor_keeps_a_share_of_its_own_length() -> None:
    """Of two weights and two biases that are a tenth as long: the larger of each."""
    training_run = started(KEEP, 1.0)
    assert training_run.gradients.tensor_sizes == [WEIGHTS, BIASES]
    row = torch.zeros(1, DIMENSIONS)
    row[0, :2] = row[0, WEIGHTS:] = torch.tensor([0.55, 0.45]).sqrt()
    row[0, WEIGHTS:] /= 10
    assert np.flatnonzero(contributed(training_run, row)[0]).tolist() == [0, WEIGHTS]


def test_noise_is_the_same_on_coordinates_that_are_kept_and_that_never_are() -> None:
    """Two thousand draws each: the released sum does not tell which places a unit kept."""
    training_run, half = started(KEEP, 1.0), WEIGHTS // 2
    row = torch.full((1, DIMENSIONS), math.sqrt(0.45 / half))
    row[0, :half] = math.sqrt(0.55 / half)
    row[0, WEIGHTS:] = 0
    exact = contributed(training_run, row)[0]
    assert exact[:half].all()
    assert not exact[half:].any()
    mechanism, account = training_run.mechanism, MemoryAccount(10**30)
    sizes = training_run.gradients.tensor_sizes
    compressed = GradientChunk(compress(row, training_run._parameters, sizes), torch.arange(1))
    draws = 2000 // half + 1
    for step in range(draws):
        mechanism.release(lambda: [compressed], step=step, account=account, noise=NoiseSource())
    noise = np.array([account.replay(step) - exact for step in range(draws)]) / mechanism.noise_stddev
    for part in (noise[:, :half], noise[:, half:]):
        assert part.size >= 2000
        tail = stats.chi2.cdf((part**2).sum(), part.size)
        assert 1e-9 < tail < 1 - 1e-9


SHARES = [0.6, 0.7, 0.8, 1.0]


def rows() -> torch.Tensor:
    """Gaussian, heavy-tailed, tiny, huge, equal, one coordinate, zero."""
    rng = np.random.default_rng(2)
    many = [rng.normal(size=(40, 60)), rng.standard_cauchy((40, 60)), 1e-20 * rng.normal(size=(4, 60))]
    few = [1e18 * rng.normal(size=(4, 60)), np.ones((1, 60)), np.eye(60)[:1], np.zeros((1, 60))]
    return torch.from_numpy(np.concatenate([*many, *few]).astype(np.float32))


def energy(row: torch.Tensor) -> Fraction:
    return sum((Fraction(float(value)) ** 2 for value in row), Fraction(0))


@pytest.mark.parametrize("share", SHARES)
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


@pytest.mark.parametrize("share", SHARES)
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
