"""Votes for public cells: golden sensitivities, and that a unit has one voice whatever it holds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from datalens_service.mechanisms import CellVotes
from datalens_service.mechanisms.cell_votes import Votes
from datalens_service.privacy.accounting import NeighboringRelation

ZERO_OUT, REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE
MECHANISM = CellVotes(num_groups=2, cells=4, grid=1000, noise_stddev=10_000)


def votes(*records: tuple[int, int, int]) -> Votes:
    """Records as (unit, class, cell)."""
    units, groups, cells = np.array(records, dtype=np.int64).reshape(-1, 3).T
    return Votes(cells, groups, units)


def distance(first: Votes, second: Votes) -> float:
    difference = MECHANISM.exact_sum(first) - MECHANISM.exact_sum(second)
    return float((difference**2).sum()) / MECHANISM.grid**2


OTHERS = ((8, 0, 1), (8, 0, 2), (9, 1, 1))


@pytest.mark.parametrize("records", [1, 2, 3, 7])
def test_golden_sensitivities_of_a_unit_of_any_number_of_records(records: int) -> None:
    assert MECHANISM.sensitivity_squared(ZERO_OUT) == Fraction(1000**2)
    assert MECHANISM.sensitivity_squared(REPLACE_ONE) == Fraction(2 * 1000**2)
    unit = tuple((5, 0, 3) for _ in range(records))
    assert distance(votes(*OTHERS, *unit), votes(*OTHERS)) == 1, "adding or removing it"
    other = tuple((5, 1, 0) for _ in range(records))
    assert distance(votes(*OTHERS, *unit), votes(*OTHERS, *other)) == 2, "replacing it"
    spread = tuple((5, record % 2, record % 4) for record in range(records))
    assert distance(votes(*OTHERS, *spread), votes(*OTHERS)) <= 1, "records of several classes and cells"
    assert distance(votes(*OTHERS, *spread), votes(*OTHERS)) > 0.98


def test_a_unit_of_two_cells_gives_each_its_part_of_length_one() -> None:
    total = MECHANISM.exact_sum(votes((0, 1, 1), (0, 1, 2), (0, 1, 2)))
    assert total.tolist() == [[0, 0, 0, 0], [0, 447, 894, 0]]


def test_records_outside_all_cells_do_not_vote() -> None:
    assert not MECHANISM.exact_sum(votes((0, 0, -1), (1, 1, 4))).any()
    assert not MECHANISM.exact_sum(votes()).any()


def test_the_order_of_records_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    records = np.stack([rng.integers(9, size=40), rng.integers(2, size=40), rng.integers(4, size=40)], axis=1)
    shuffled = records[rng.permutation(40)]
    sums = [MECHANISM.exact_sum(votes(*map(tuple, rows))) for rows in (records, shuffled)]
    np.testing.assert_array_equal(*sums)


def test_no_unit_is_longer_than_one_vote_however_many_records_it_has() -> None:
    rng = np.random.default_rng(1)
    for records in (2, 5, 1000, 200_000):
        many = votes(*np.stack([np.zeros(records), rng.integers(2, size=records), rng.integers(4, size=records)], 1))
        assert int((MECHANISM.exact_sum(many) ** 2).sum()) <= MECHANISM.grid**2


@pytest.mark.parametrize("counts", [[2**21], [2_965_821], [2**22], [2**22 + 1], [2**22 + 1, 7], [2**40, 2**40, 1]])
def test_nor_is_a_unit_of_millions_of_records(counts: list[int]) -> None:
    """Squares of such counts, ten places longer, would leave 63 bits."""
    shares = MECHANISM._shares(np.zeros(len(counts), dtype=np.int64), np.array(counts))
    assert 0.99 * MECHANISM.grid**2 <= int((shares**2).sum()) <= MECHANISM.grid**2
    assert shares.min() >= 0
