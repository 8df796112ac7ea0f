"""Realised individual ε: levels that never undercut a norm, and how it compares with the ε of the job."""

import numpy as np
import pytest

from datalens_service.base.errors import InvalidSpec
from datalens_service.privacy.accounting import epsilon_of_ledger_units
from datalens_service.privacy.individual import (
    FullBatchAccountant,
    SampledAccountant,
    level_table,
    norm_levels,
    realised_epsilons,
    with_margin,
)
from datalens_service.privacy.poisson_sampling import continuous_multiplier

RADIUS, STDDEV, STEPS, LEVELS, DELTA = 65_617, 400_000, 60, 100, 1e-5
FULL_BATCH = FullBatchAccountant(RADIUS, STDDEV, LEVELS)


def test_a_level_is_the_smallest_that_covers_the_norm():
    rng = np.random.default_rng(0)
    edges = np.array([level**2 * RADIUS**2 // LEVELS**2 for level in range(LEVELS + 1)])
    squares = np.concatenate([rng.integers(0, RADIUS**2, 20_000, endpoint=True), edges, edges[:-1] + 1])
    for square, level in zip(squares.tolist(), norm_levels(squares, RADIUS, LEVELS).tolist(), strict=True):
        assert square * LEVELS**2 <= level**2 * RADIUS**2
        assert level == 0 or square * LEVELS**2 > (level - 1) ** 2 * RADIUS**2


@pytest.mark.parametrize("square", [-1, RADIUS**2 + 1])
def test_a_norm_beyond_the_radius_is_refused(square: int):
    with pytest.raises(InvalidSpec):
        norm_levels(np.array([square]), RADIUS, LEVELS)


def test_a_unit_without_gradients_has_an_epsilon_of_zero():
    assert FULL_BATCH.epsilon({0: STEPS}, DELTA) == 0


def test_larger_norms_never_have_a_smaller_epsilon():
    rng = np.random.default_rng(2)
    lower = rng.integers(0, LEVELS, (STEPS, 8))
    higher = lower + (rng.random(lower.shape) < 0.3)
    first, second = (realised_epsilons(levels, FULL_BATCH, DELTA) for levels in (lower, higher))
    assert (first <= second).all()
    assert (first < second).any()


def test_another_unit_leaves_an_individual_epsilon_as_it_was():
    levels = np.random.default_rng(3).integers(0, LEVELS + 1, (STEPS, 6))
    alone = realised_epsilons(levels[:, :5], FULL_BATCH, DELTA)
    assert realised_epsilons(levels, FULL_BATCH, DELTA)[:5].tolist() == alone.tolist()


def test_sampled_steps_have_the_same_interface():
    multiplier = continuous_multiplier(RADIUS**2, 2 * RADIUS)
    sampled = SampledAccountant(1 / 15, multiplier, worst_epsilon=2.9, levels=LEVELS)
    found = [sampled.epsilon({level: 300}, DELTA) for level in (0, 20, 60, 90, 100)]
    assert found == sorted(found)
    assert found[0] == 0
    assert found[-1] == 2.9, "never more than the job"


def test_sampling_every_unit_is_never_cheaper_than_the_full_batch():
    sampled = SampledAccountant(1.0, continuous_multiplier(RADIUS**2, STDDEV), worst_epsilon=np.inf, levels=LEVELS)
    for level in (10, 50, 100):
        tight = FULL_BATCH.epsilon({level: STEPS}, DELTA)
        assert tight <= sampled.epsilon({level: STEPS}, DELTA) <= 1.25 * tight + 0.02


def test_many_units_at_once_have_no_smaller_epsilon_and_hardly_a_larger_one():
    rng = np.random.default_rng(4)
    levels = rng.integers(0, LEVELS + 1, (STEPS, 12))
    table = level_table(levels, np.ones(STEPS, dtype=np.int64), LEVELS)
    sampled = SampledAccountant(1 / 15, 2.0, worst_epsilon=2.9, levels=LEVELS, other_ledger_units=10**11)
    for accountant in (FULL_BATCH, sampled):
        each, all_at_once = realised_epsilons(levels, accountant, DELTA), accountant.epsilons(table, DELTA)
        assert (all_at_once >= each * (1 - 1e-12)).all()
        assert (all_at_once <= each * 1.01 + 1e-9).all()


def test_the_company_of_a_unit_changes_no_bit_of_its_epsilon():
    """Neither which levels others are at nor how many they are."""
    rng = np.random.default_rng(6)
    table = level_table(rng.integers(0, LEVELS + 1, (STEPS, 40)), np.ones(STEPS, dtype=np.int64), LEVELS)
    sampled = SampledAccountant(1 / 15, 2.0, worst_epsilon=np.inf, levels=LEVELS)
    together = sampled.epsilons(table, DELTA)
    for units in (slice(3, 6), slice(0, 39), *(slice(unit, unit + 1) for unit in range(40))):
        assert sampled.epsilons(table[units], DELTA).tobytes() == together[units].tobytes()


def test_an_iterate_stands_for_as_many_steps_as_it_is_said_to():
    table = level_table(np.array([[3, 0], [5, 0]]), np.array([4, 2]), LEVELS)
    assert (table[0, 3], table[0, 5], table[1, 0]) == (4, 2, 6)
    assert table.sum(axis=1).tolist() == [6, 6]


def test_other_releases_of_the_job_cost_every_unit():
    units = 10**13
    beside = FullBatchAccountant(RADIUS, STDDEV, LEVELS, other_ledger_units=units)
    assert beside.epsilon({}, DELTA) == epsilon_of_ledger_units(units, DELTA)
    assert beside.epsilons(np.zeros((1, LEVELS + 1), dtype=np.int64), DELTA)[0] == epsilon_of_ledger_units(units, DELTA)
    sampled = SampledAccountant(0.1, 2.0, worst_epsilon=np.inf, levels=LEVELS, other_ledger_units=units)
    assert (
        epsilon_of_ledger_units(units, DELTA)
        <= sampled.epsilon({}, DELTA)
        <= 1.4 * epsilon_of_ledger_units(units, DELTA)
    )
    assert sampled.epsilon({50: 9}, DELTA) > sampled.epsilon({}, DELTA)


def test_the_margin_covers_gradients_that_were_rounded_otherwise():
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(200, 500)) * rng.uniform(0.1, 2000, (200, 1))
    other = rows * (1 + 1e-6 * rng.normal(size=rows.shape))
    first, second = (np.rint(values).astype(np.int64) for values in (rows, other))
    norms, others = ((values**2).sum(axis=1) for values in (first, second))
    assert (with_margin(norms, RADIUS) >= others).all()
    assert with_margin(np.array([0, RADIUS**2]), RADIUS).tolist() == [16, RADIUS**2]


def test_an_order_that_cannot_be_computed_at_one_level_spoils_no_unit_without_such_steps() -> None:
    """dp_accounting gives up on orders below 2 at these levels, and says infinite."""
    accountant = SampledAccountant(0.25, 2.0, worst_epsilon=100.0, levels=10)
    short = accountant.epsilon({1: 30}, 1e-5)
    assert 0 < short < accountant.epsilon({5: 30}, 1e-5) < accountant.epsilon({10: 30}, 1e-5) < 100
