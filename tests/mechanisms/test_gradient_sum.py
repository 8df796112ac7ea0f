"""Gradient sums: the bound on adversarial rows, exact sums whatever the chunks, one row for each unit."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from datalens_service.base.errors import ContributionFailed
from datalens_service.mechanisms import GradientChunk, GradientSum
from datalens_service.mechanisms import gradient_sum as gradient_sums
from datalens_service.mechanisms.gradient_sum import row_norms, unit_means, within_radius
from datalens_service.privacy.accounting import NeighboringRelation
from tests.torch_threads import torch_threads

DIMENSIONS = 40


def gradient_sum(**changes: object) -> GradientSum:
    return GradientSum.model_validate({"dimensions": DIMENSIONS, "clip_norm": 1.0, "noise_stddev": 10**6} | changes)


def adversarial_rows(count: int, rng: np.random.Generator) -> torch.Tensor:
    """Huge, tiny, subnormal, along one axis, all coordinates alike, on the edge of two grid steps."""
    rows = torch.tensor(rng.standard_normal((count, DIMENSIONS)), dtype=torch.float32)
    rows *= torch.tensor(rng.choice([1e-44, 1e-38, 1e-6, 1.0, 1e6, 1e37], size=(count, 1)), dtype=torch.float32)
    rows[1::7] = 0
    rows[1::7, 3] = 1e30
    rows[2::7] = torch.rand(len(rows[2::7]), 1, generator=torch.Generator().manual_seed(1))
    rows[3::7] = (torch.round(rows[3::7].clamp(-9, 9)) + 0.5) / 2**16
    rows[4::7, 0] = float("nan")
    rows[5::7, 1] = float("-inf")
    return rows


def test_the_bound_holds_in_whole_numbers_even_if_lengths_are_computed_wrong(monkeypatch):
    """One unit above the squared radius is less than float32 tells apart."""
    mechanism = gradient_sum()
    monkeypatch.setattr(gradient_sums, "row_norms", lambda rows: torch.ones(len(rows)))
    rows = torch.zeros(3, DIMENSIONS, dtype=torch.float64)
    rows[:, 0] = torch.tensor([mechanism.radius, mechanism.radius, mechanism.radius + 1]) / mechanism.grid
    rows[1, 1] = 1 / mechanism.grid
    assert mechanism.on_grid(rows)[:, 0].tolist() == [mechanism.radius, 0, 0]


@pytest.mark.parametrize("dimensions", [1, 127, 128, 129, 1_000, 26_010])
def test_whether_a_row_is_within_the_radius_is_decided_in_whole_numbers(dimensions):
    """At, above and below the bound; the sum of squares is that of the radius to the last unit."""
    radius = math.isqrt(dimensions * 181**2)
    rng = np.random.default_rng(dimensions)
    rows = np.full((60, dimensions), 181.0, dtype=np.float32) * rng.choice([-1, 1], size=(60, dimensions))
    rows[20:40, rng.integers(dimensions)] += rng.integers(-3, 4, size=20)
    rows[40:] = rng.integers(-300, 300, size=(20, dimensions))
    expected = [sum(int(value) ** 2 for value in row) <= radius**2 for row in rows]
    assert within_radius(torch.tensor(rows), radius).tolist() == expected
    assert [bool(within_radius(torch.tensor(row[None]), radius)) for row in rows] == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, -3e38])
def test_what_is_not_a_length_is_outside(value):
    rows = torch.zeros(2, DIMENSIONS)
    rows[1, 3] = value
    assert within_radius(rows, 2**16).tolist() == [True, False]


@pytest.mark.parametrize("dimensions", [1, 128, 1_000, 101_770])
def test_bounds_of_squares_are_above_them_and_close(dimensions):
    rng = np.random.default_rng(dimensions)
    sizes = rng.choice([1, 10, 1_000, 2**16], size=(40, 1))
    rows = torch.tensor(np.rint(rng.standard_normal((40, dimensions)) * sizes), dtype=torch.float32)
    exact = rows.to(torch.float64).square().sum(dim=1)
    bounds = gradient_sums._squares_at_most(rows)
    assert (bounds >= exact).all()
    assert (bounds <= exact * (1 + 2**-15)).all()


def test_a_mean_too_long_for_float32_adds_nothing():
    rows = torch.zeros(3, DIMENSIONS, dtype=torch.float64)
    rows[:, 0] = torch.tensor([1e18, 1e25, 1e300])
    assert gradient_sum().on_grid(rows)[:, 0].tolist() == [2**16, 0, 0]


@pytest.mark.parametrize("clip_norm", [0.01, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_no_row_is_longer_than_the_radius(clip_norm, dtype):
    mechanism = gradient_sum(clip_norm=clip_norm)
    rows = mechanism.on_grid(adversarial_rows(5_000, np.random.default_rng(0)).to(dtype)).numpy()
    squared = (rows.astype(np.int64) ** 2).sum(axis=1)
    assert squared.max() <= mechanism.radius**2
    assert (rows == np.rint(rows)).all()
    assert not rows[4::7].any()
    assert not rows[5::7].any()


def test_clipped_gradients_reach_the_radius():
    mechanism = gradient_sum(clip_norm=0.5)
    along_one_axis = torch.zeros(1, DIMENSIONS)
    along_one_axis[0, 5] = -3.0
    assert float(mechanism.on_grid(along_one_axis).norm()) >= 0.999 * mechanism.radius


def test_short_gradients_keep_their_length():
    mechanism = gradient_sum(clip_norm=2.0)
    rows = torch.tensor(np.random.default_rng(3).standard_normal((50, DIMENSIONS)) * 0.1)
    released = mechanism.on_grid(rows).double() * (2.0 / mechanism.grid)
    torch.testing.assert_close(released, rows, atol=2.0 / mechanism.grid, rtol=0)


@pytest.mark.parametrize("sizes", [[1_000], [1] * 1_000, [300, 300, 400], [0, 1_000, 0]])
def test_sums_are_exact_whatever_the_chunks(sizes):
    mechanism = gradient_sum()
    rows = torch.full((1_000, DIMENSIONS), 3.0)
    rows[::2] += torch.tensor(np.random.default_rng(4).standard_normal((500, DIMENSIONS)), dtype=torch.float32)
    chunks = [
        GradientChunk(*parts)
        for parts in zip(torch.split(rows, sizes), torch.split(torch.arange(1_000), sizes), strict=True)
    ]
    expected = mechanism.on_grid(rows).numpy().astype(np.int64).sum(axis=0)
    np.testing.assert_array_equal(mechanism.exact_sum(chunks), expected)


@pytest.mark.parametrize(
    ("dimensions", "count", "largest"), [(DIMENSIONS, 130, 128), (20_000, 200, 104), (2**21, 2, 1)]
)
def test_what_is_clipped_together_stays_small(dimensions, count, largest, monkeypatch):
    sizes = []
    monkeypatch.setattr(GradientSum, "on_grid", lambda self, rows: sizes.append(len(rows)) or rows)
    gradient_sum(dimensions=dimensions).exact_sum([GradientChunk(torch.zeros(count, dimensions), torch.arange(count))])
    assert max(sizes) == largest
    assert sum(sizes) == count


@pytest.fixture
def two_threads():
    with torch_threads(2):
        yield


@pytest.mark.parametrize("dimensions", [61_706, 101_770, 400_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_norm_of_a_row_is_the_same_alone_and_beside_others(dimensions, dtype, two_threads):
    rows = torch.tensor(np.random.default_rng(8).standard_normal((12, dimensions)), dtype=dtype)
    together = row_norms(rows)
    for count in (1, 2, 5):
        assert torch.equal(row_norms(rows[:count]), together[:count])
        assert torch.equal(row_norms(rows[-count:]), together[-count:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_in_columns_of_memory_are_the_same_alone_and_beside_others(dtype, two_threads):
    rows = torch.tensor(np.random.default_rng(9).standard_normal((7_850, 12)), dtype=dtype).t()
    mechanism, before = gradient_sum(dimensions=7_850), rows.clone()
    norms = []
    original = gradient_sums.row_norms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradient_sums, "row_norms", lambda values: norms.append(original(values)) or norms[-1])
        for part in (rows, rows[:1], rows[:5]):
            mechanism.on_grid(part)
    assert all(torch.equal(some, norms[0][: len(some)]) for some in norms)
    assert torch.equal(rows, before)


def test_a_unit_of_several_records_adds_the_clipped_mean_of_their_gradients():
    mechanism = gradient_sum()
    rows = torch.tensor(np.random.default_rng(5).standard_normal((6, DIMENSIONS)), dtype=torch.float32) * 0.3
    units = torch.tensor([1, 1, 1, 4, 7, 7])
    means = torch.stack([rows[:3].double().mean(0), rows[3].double(), rows[4:].double().mean(0)])
    torch.testing.assert_close(unit_means(GradientChunk(rows, units)), means)
    expected = mechanism.on_grid(means).numpy().astype(np.int64).sum(axis=0)
    np.testing.assert_array_equal(mechanism.exact_sum([GradientChunk(rows, units)]), expected)


def test_a_mean_depends_on_its_own_unit_to_the_last_bit():
    rows = torch.tensor(np.random.default_rng(6).standard_normal((9, DIMENSIONS)), dtype=torch.float32)
    units = torch.tensor([0, 1, 1, 1, 2, 2, 3, 3, 3])
    before = unit_means(GradientChunk(rows, units))
    others = rows.clone()
    others[4:6] *= -1e9
    after = unit_means(GradientChunk(torch.cat([others, others[-1:]]), torch.cat([units, units[-1:]])))
    for unit in (0, 1):
        assert torch.equal(before[unit], after[unit])


@pytest.mark.parametrize(
    "units",
    [[[0, 1], [1, 2]], [[0, 1], [0, 2]], [[1, 0], [2, 3]], [[0, 2], [1, 3]]],
    ids=["split", "repeated", "descending", "out of order"],
)
def test_a_unit_cannot_add_two_rows(units):
    chunks = [GradientChunk(torch.ones(2, DIMENSIONS), torch.tensor(identities)) for identities in units]
    with pytest.raises(ContributionFailed, match="side by side"):
        gradient_sum().exact_sum(chunks)


def test_gradients_of_another_network_are_refused():
    with pytest.raises(ContributionFailed, match="shape"):
        gradient_sum().exact_sum([GradientChunk(torch.ones(2, DIMENSIONS + 1), torch.arange(2))])


def test_the_price_is_that_of_the_radius():
    mechanism = gradient_sum(grid=1000)
    assert mechanism.radius == 1000 + 3 + 1
    assert mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT) == Fraction(1004**2)
    assert mechanism.sensitivity_squared(NeighboringRelation.REPLACE_ONE) == Fraction(4 * 1004**2)


def test_the_divisor_of_a_released_gradient_is_left_to_the_caller():
    """A divisor by the number of records that were present would be a private number."""
    mechanism = gradient_sum()
    row = torch.full((1, DIMENSIONS), 0.01)
    copies = [GradientChunk(row.repeat(8, 1), torch.arange(8))]
    once = mechanism.decode(mechanism.exact_sum([GradientChunk(row, torch.arange(1))]))
    np.testing.assert_allclose(mechanism.decode(mechanism.exact_sum(copies)), 8 * once)
