"""A row of a product is a function of its own vector, bit by bit."""

import numpy as np
import pytest

from datalens_service.models.exact_products import exact_products, on_grid


def multiplied(rows: np.ndarray, released: np.ndarray, longest: float = 1.0) -> np.ndarray:
    return exact_products(on_grid(rows, longest), released)


def vectors(count: int, dimensions: int) -> np.ndarray:
    """Of all lengths up to far beyond 1."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((count, dimensions)) * rng.choice([1e-3, 0.1, 3.0], size=(count, 1)) / dimensions**0.5


def matrix(dimensions: int, columns: int, length: float = 1.0) -> np.ndarray:
    drawn = np.random.default_rng(1).standard_normal((dimensions, columns))
    return drawn * length / np.linalg.norm(drawn, axis=0)


@pytest.mark.parametrize(("dimensions", "columns"), [(36, 4), (785, 3), (1665, 10), (4096, 17)])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_row_does_not_depend_on_how_many_there_are(dimensions: int, columns: int, kind: type) -> None:
    rows, released = vectors(700, dimensions).astype(kind), matrix(dimensions, columns)
    together = multiplied(rows, released)
    for start, stop in ((0, 699), (1, 700), (13, 14), (511, 514), (3, 540)):
        apart = multiplied(rows[start:stop], released)
        assert apart.tobytes() == together[start:stop].tobytes()


def test_sums_are_exact() -> None:
    """Against integers of any size: no partial sum was rounded."""
    rows, released = np.ones((2, 2**18)) / 2**9, np.ones((2**18, 1)) / 2**9
    rows[1, 1::2] *= -1
    whole = [[round(value * 2**24) for value in row] for row in rows.tolist()]
    columns = [round(value * 2**28) for value in released[:, 0].tolist()]
    expected = [sum(a * b for a, b in zip(row, columns, strict=True)) / 2**52 for row in whole]
    assert multiplied(rows, released)[:, 0].tolist() == expected == [1.0, 0.0]


@pytest.mark.parametrize("length", [1e-3, 1.0, 40.0])
def test_products_are_those_of_vectors_within_the_bound(length: float) -> None:
    rows, released = vectors(50, 100), matrix(100, 5, length)
    shortened = rows * np.minimum(1, 2.0 / np.linalg.norm(rows, axis=1))[:, None]
    products = multiplied(rows, released, longest=2.0)
    np.testing.assert_allclose(products, shortened @ released, atol=1e-6 * length)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_vectors_are_rounded_once(kind: type) -> None:
    rounded = on_grid(vectors(50, 100).astype(kind), longest=8.0)
    assert rounded.dtype == kind
    steps = rounded.astype(np.float64) * 2**21
    assert np.array_equal(steps, np.rint(steps))
    assert np.array_equal(on_grid(rounded, longest=8.0), rounded)


def test_a_matrix_of_zeros_gives_zeros() -> None:
    assert not multiplied(vectors(5, 9), np.zeros((9, 2))).any()
