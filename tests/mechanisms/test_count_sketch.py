"""Count sketches against a plain NumPy reading of Algorithm 7 of DataLens (CCS 2021)."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from datalens_service.mechanisms import CountSketch
from datalens_service.mechanisms.topagg import sign_votes
from datalens_service.privacy.accounting import cost_ledger_units
from privacy_gate.cases import vote

TEACHERS, IMAGES, DIMENSIONS = 40, 4, 25


def sketch(**changes: object) -> CountSketch:
    sizes: dict = {
        "num_teachers": 1000, "images": IMAGES, "dimensions": DIMENSIONS, "clip": 0.5,
        "top_k": 6, "rows": 3, "columns": 11,
    }  # fmt: skip
    return vote(CountSketch, **(sizes | changes))


def gradients(seed: int) -> torch.Tensor:
    return torch.randn(TEACHERS, IMAGES, DIMENSIONS, generator=torch.Generator().manual_seed(seed)) * 0.1


def hashes(mechanism: CountSketch) -> tuple[np.ndarray, np.ndarray]:
    """Column and sign of every coordinate, per row."""
    draw = np.random.default_rng(mechanism.seed)
    columns = draw.integers(mechanism.columns, size=(mechanism.rows, mechanism.dimensions))
    return columns, 2 * draw.integers(2, size=columns.shape, dtype=np.int8) - 1


def plain_table(mechanism: CountSketch, votes: np.ndarray) -> np.ndarray:
    """(columns, rows), column by column until the squared length is used up."""
    columns, signs = hashes(mechanism)
    table = np.zeros((mechanism.columns, mechanism.rows), dtype=np.int64)
    for row in range(mechanism.rows):
        for coordinate, value in enumerate(votes):
            table[columns[row, coordinate], row] += signs[row, coordinate] * value
    left = mechanism.rows * mechanism.top_k
    flat = table.ravel()
    for cell in range(flat.size):
        left -= flat[cell] ** 2
        flat[cell] *= left >= 0
    return flat


def test_tables_are_the_count_sketches_of_the_votes():
    mechanism = sketch()
    votes = sign_votes(gradients(0), 6, 0.5, None).numpy()
    expected = [[plain_table(mechanism, image) for image in teacher] for teacher in votes]
    tables = mechanism.encode(gradients(0), torch.Generator()).numpy()
    np.testing.assert_array_equal(tables, expected)
    lengths = (tables.astype(int) ** 2).sum(axis=-1)
    assert (lengths <= 18).all()
    whole = (np.array([[plain_table(sketch(columns=10_000), i) for i in t] for t in votes[:3]]) ** 2).sum(axis=-1)
    assert (whole == 18).all(), "without collisions nothing is lost"


def test_agreeing_teachers_are_read_back_from_their_sum():
    mechanism = sketch(columns=200)
    one = gradients(1)[:1]
    votes = sign_votes(one, 6, 0.5, None)[0].numpy()
    total = mechanism.exact_sum([one.expand(250, -1, -1)] * 4)
    assert total.shape == (IMAGES, 600)
    np.testing.assert_array_equal(mechanism.decode(total), votes.astype(np.float32))
    np.testing.assert_array_equal(mechanism.model_copy(update={"threshold": 0.9}).decode(total), votes)


def test_decoding_averages_the_rows_and_keeps_k():
    mechanism = sketch(num_teachers=10)
    noisy = np.random.default_rng(2).integers(-900, 900, (IMAGES, 33))
    columns, signs = hashes(mechanism)
    tables = noisy.reshape(IMAGES, 11, 3)
    for image in range(IMAGES):
        estimates = np.array(
            [np.mean([signs[r, i] * tables[image, columns[r, i], r] for r in range(3)]) for i in range(DIMENSIONS)]
        )
        estimates[np.argsort(-np.abs(estimates), kind="stable")[6:]] = 0
        np.testing.assert_allclose(mechanism.decode(noisy)[image], estimates / 10, rtol=1e-6)


def test_a_table_costs_as_many_votes_as_it_has_rows():
    assert sketch(rows=1).cost() == IMAGES * cost_ledger_units(4 * 6, 500)
    assert sketch(rows=5).cost() == IMAGES * cost_ledger_units(4 * 6 * 5, 500)
    assert sketch(columns=3).cost() == sketch(columns=300).cost()


def test_more_votes_than_coordinates_are_refused():
    with pytest.raises(ValidationError, match="at most as many coordinates"):
        sketch(top_k=26)
