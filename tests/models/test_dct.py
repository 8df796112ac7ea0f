import numpy as np
import pytest
from scipy.fft import dctn

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.models.exact_products import exact_products, on_grid
from datalens_service.models.generators.dct import LowFrequencies, dct_basis

from .builders import schema_of


@pytest.mark.parametrize("schema", [schema_of(1, 8, 8), schema_of(3, 6, 9), schema_of(2, 4, 4)], ids=str)
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_columns_are_orthonormal(schema: Schema, share: float):
    count = max(1, int(share * schema.dimensions))
    basis = dct_basis(schema, count)
    assert basis.dtype == np.float32
    assert basis.shape == (schema.dimensions, count)
    np.testing.assert_allclose(basis.T @ basis, np.eye(count), atol=1e-5)


def test_columns_follow_the_zigzag_of_jpeg():
    schema = schema_of(1, 8, 8)
    # (vertical, horizontal) frequencies, as in ITU-T T.81, figure 5.
    order = [(0, 0), (0, 1), (1, 0), (2, 0), (1, 1), (0, 2), (0, 3), (1, 2), (2, 1), (3, 0), (4, 0)]
    for column, frequency in zip(dct_basis(schema, len(order)).T, order, strict=True):
        coefficients = dctn(column.reshape(8, 8), norm="ortho")
        expected = np.zeros((8, 8))
        expected[frequency] = 1.0
        np.testing.assert_allclose(coefficients, expected, atol=1e-6)


def test_channels_of_a_frequency_stay_together():
    schema = schema_of(3, 4, 4)
    planes = dct_basis(schema, 7).T.reshape(7, 3, 16)
    used = [np.flatnonzero(np.abs(column).sum(axis=1)).tolist() for column in planes]
    assert used == [[0], [1], [2], [0], [1], [2], [0]]
    np.testing.assert_allclose(planes[:3].sum(axis=1), 0.25, atol=1e-6)


@pytest.mark.parametrize("count", [0, 65])
def test_counts_outside_the_image_are_refused(count: int):
    with pytest.raises(InvalidSpec, match="1 to 64"):
        dct_basis(schema_of(1, 8, 8), count)


@pytest.mark.parametrize("count", [5, 30, 89, 90])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_coordinates_are_lengths_along_orthonormal_directions(channels: int, count: int):
    schema = schema_of(channels, 6, 5)
    count = min(count, schema.dimensions)
    frequencies = LowFrequencies(schema, count)
    basis = frequencies.lift(np.eye(count, dtype=np.float32))
    np.testing.assert_allclose(basis.T @ basis, np.eye(count), atol=1e-5)
    vectors = on_grid(np.random.default_rng(0).random((4, schema.dimensions)), np.sqrt(schema.dimensions))
    coordinates = frequencies.coordinates(vectors)
    np.testing.assert_allclose(coordinates, vectors @ basis, atol=1e-5)
    alone = [frequencies.coordinates(vectors[row : row + 1])[0] for row in range(4)]
    np.testing.assert_array_equal(coordinates, alone)


def test_of_grey_images_they_are_the_cosine_basis_bit_by_bit():
    schema = schema_of(1, 6, 5)
    vectors = on_grid(np.random.default_rng(0).random((4, schema.dimensions)), np.sqrt(schema.dimensions))
    expected = exact_products(vectors, dct_basis(schema, 7))
    np.testing.assert_array_equal(LowFrequencies(schema, 7).coordinates(vectors), expected)


@pytest.mark.parametrize(
    ("count", "expected"), [(24, (16, 4, 4)), (25, (17, 4, 4)), (1, (1, 0, 0)), (120, (64, 28, 28)), (192, (64,) * 3)]
)
def test_chroma_has_half_the_resolution_of_luma(count: int, expected: tuple[int, ...]):
    schema = schema_of(3, 8, 8)
    frequencies = LowFrequencies(schema, count)
    assert frequencies.counts == expected
    grey = on_grid(np.tile(np.random.default_rng(0).random((2, 64)), 3), np.sqrt(192))
    coordinates = frequencies.coordinates(grey)
    assert np.abs(coordinates[:, expected[0] :]).max(initial=0.0) < 1e-6, "grey images have no chroma"
