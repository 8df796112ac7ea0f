"""Sums of contributions: exact up to the end of their range, and refused beyond it before anything is added."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

from datalens_service.base.errors import ContributionFailed
from datalens_service.jobs.failures import describe_problem
from datalens_service.mechanisms import VectorSum
from datalens_service.mechanisms.exact_sum import LARGEST_SUM, ExactSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.privacy.randomness import _LARGEST_MULTIPLE, MAXIMUM_NOISE_STDDEV

MECHANISMS = Path(__file__).parents[2] / "datalens_service" / "mechanisms"


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sum_is_attained_exactly_and_the_next_row_is_refused(sign: int) -> None:
    exact = ExactSum((1,), LARGEST_SUM // 4)
    for _ in range(4):
        exact.add(np.array([[sign * LARGEST_SUM // 4]]))
    assert exact.total.tolist() == [sign * LARGEST_SUM]
    with pytest.raises(ContributionFailed, match="63 bits"):
        exact.add(np.array([[0]]))


def test_noise_of_any_stddev_fits_beside_the_largest_sum() -> None:
    assert LARGEST_SUM + MAXIMUM_NOISE_STDDEV * (_LARGEST_MULTIPLE + 1) < 2**63


@pytest.mark.parametrize("make", [np.array, torch.tensor])
@pytest.mark.parametrize(("kind", "places"), [("float32", 24), ("float64", 53)])
def test_floats_are_added_up_to_their_last_exact_sum_and_no_further(make: object, kind: str, places: int) -> None:
    dtype = getattr(np if make is np.array else torch, kind)
    half = 2 ** (places - 1)
    rows = make([[half - 1], [half]], dtype=dtype)  # type: ignore[operator]
    exact = ExactSum((1,), half)
    exact.add(rows)
    assert exact.total.tolist() == [2**places - 1]
    with pytest.raises(ContributionFailed, match=f"{kind} adds up exactly"):
        ExactSum((1,), half).add(make([[1], [1], [1]], dtype=dtype))  # type: ignore[operator]


@pytest.mark.parametrize("value", [0.5, -1e-3, np.nan, np.inf])
def test_rows_that_are_not_whole_are_refused(value: float) -> None:
    for rows in (np.array([[1.0], [value]]), torch.tensor([[1.0], [value]])):
        with pytest.raises(ContributionFailed, match="one by one"):
            ExactSum((1,), 9).add(rows)
    with pytest.raises(ContributionFailed, match="one by one"):
        ExactSum((1, 1), 9).add_products(np.array([[1.0]]), np.array([[value]]))
    with pytest.raises(ContributionFailed, match="whole numbers"):
        ExactSum((1,), 9).add_at(np.array([0]), np.array([value]))


@pytest.mark.parametrize("value", [4, -4, -128])
def test_a_row_beyond_the_bound_is_refused(value: int) -> None:
    for rows in (np.array([[value]]), np.array([[float(value)]]), torch.tensor([[value]], dtype=torch.int8)):
        with pytest.raises(ContributionFailed, match="longer than the bound"):
            ExactSum((1,), 3).add(rows)
    with pytest.raises(ContributionFailed, match="longer than the bound"):
        ExactSum((1,), 3).add_at(np.array([0]), np.array([value], dtype=np.int8))
    with pytest.raises(ContributionFailed, match="longer than the bound"):
        ExactSum((1, 1), 3).add_products(np.array([[2.0]]), np.array([[2.0]]))


def test_counts_are_a_part_of_the_range() -> None:
    mechanism = VectorSum(num_groups=1, dimensions=1, count_weight=LARGEST_SUM, noise_stddev=2**20)
    one = GroupedVectors(np.zeros((2, 1)), np.zeros(2, dtype=np.int64), np.arange(2))
    with pytest.raises(ContributionFailed, match="63 bits"):
        mechanism.exact_sum(one)


def _adds_up_rows(source: str) -> list[str]:
    """Calls that may add up rows: sums over the first axis, products of matrices, counts, additions at places."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name, along = node.func.attr, {word.arg: ast.unparse(word.value) for word in node.keywords}
            first = along.get("axis", along.get("dim")) in ("0", "(0, 1)", None)
            if (name in ("sum", "mean", "nansum", "cumsum") and first) or name in ("at", "bincount", "einsum", "dot"):
                found.append(ast.unparse(node))
    return found


ALLOWED = {
    # Within one unit, or along one row.
    "np.add.at(records, of_unit, counts)",
    "np.add.at(squares, of_unit, counts ** 2)",
    "np.einsum('ij,ij->i', rounded, rounded)",
    "np.einsum('ij,ij->i', values, values)",
    "np.einsum('ij,ij->i', scaled, scaled)",
    "sizes.cumsum(0)",
    # Of what was released.
    "np.cumsum(descending)",
    "np.cumsum(shares)",
}


def test_no_mechanism_adds_up_rows_beside_the_exact_sum() -> None:
    found = {
        call
        for path in MECHANISMS.glob("*.py")
        if path.name != "exact_sum.py"
        for call in _adds_up_rows(path.read_text())
    }
    assert found - ALLOWED == set()
    assert found >= ALLOWED, "what is allowed is there"


@pytest.mark.parametrize("source", ["x.sum(axis=0)", "x.sum(dim=0)", "x.sum()", "np.bincount(x)", "x.mean(0)"])
def test_a_sum_over_rows_is_seen(source: str) -> None:
    assert _adds_up_rows(source)
    assert not _adds_up_rows("x.sum(dim=-1)\nx.sum(axis=1)")


def test_a_job_that_cannot_sum_says_the_same_whatever_the_records_are() -> None:
    problems = []
    for rows in (np.full((2, 3), 99), np.full((2, 3), 0.5)):
        with pytest.raises(ContributionFailed) as refused:
            ExactSum((3,), 5).add(rows)
        problems.append(describe_problem(refused.value))
    assert problems[0] == problems[1]
    assert "row" not in problems[0]["detail"].lower()
