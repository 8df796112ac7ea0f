"""The fit is the textbook's when the sums are exact, and drops what the noise alone could make."""

import numpy as np
import pytest

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidInput
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.generator import Generator

DIMENSIONS, COUNT = 12, 4000
SCHEMA = Schema(channels=1, height=4, width=4, class_names=("a", "b"), num_units=100)


def fit(noise_stddev: float = 0.0) -> tuple[GaussianFit, np.ndarray]:
    rng = np.random.default_rng(0)
    data = rng.standard_normal((COUNT, DIMENSIONS)) * np.linspace(0.02, 0.2, DIMENSIONS) + 0.1
    result = GaussianFit()
    result.estimate_subspace(data.T @ data, DIMENSIONS)
    coordinates = data @ result.basis
    result.estimate_means(np.concatenate([[COUNT], coordinates.sum(axis=0)])[None])
    residuals = coordinates - result.means[0]
    result.estimate_covariances((residuals.T @ residuals)[None], noise_stddev)
    return result, data


def test_exact_sums_give_mean_and_covariance():
    result, data = fit()
    tensors = result.tensors(clip_norm=2.0)
    np.testing.assert_allclose(tensors["basis"] @ tensors["means"][0], 2 * data.mean(axis=0), atol=1e-5)
    factor = tensors["basis"] @ tensors["factors"][0]
    np.testing.assert_allclose(factor @ factor.T, 4 * np.cov(data.T, bias=True), atol=1e-5)


def test_directions_below_the_noise_are_dropped():
    result, _ = fit(noise_stddev=COUNT * 0.2**2 / np.sqrt(DIMENSIONS) * 0.5)
    factor = result.tensors(1.0)["factors"][0]
    kept = np.linalg.matrix_rank(factor)
    assert 0 < kept < DIMENSIONS


def test_sampling_repeats_by_seed_and_a_longer_draw_starts_the_same():
    rng = np.random.default_rng(1)
    tensors = {
        "basis": rng.standard_normal((16, 3)).astype(np.float32),
        "means": rng.standard_normal((2, 3)).astype(np.float32),
        "factors": rng.standard_normal((2, 3, 3)).astype(np.float32),
    }
    generator = Generator("gaussian", SCHEMA, {}, tensors)
    images, labels = generator.sample(5000, seed=3)
    assert images.shape == (5000, 4, 4, 1)
    assert images.dtype == np.uint8
    assert (np.bincount(labels) == 2500).all(), "classes in turn, never private frequencies"
    again, _ = generator.sample(5000, seed=3)
    longer, _ = generator.sample(7000, seed=3)
    other, _ = generator.sample(5000, seed=4)
    np.testing.assert_array_equal(images, again)
    np.testing.assert_array_equal(images[:4096], longer[:4096])
    assert (images != other).any()
    with pytest.raises(InvalidInput):
        generator.sample(2, labels=np.array([0, 2]))


def test_a_file_is_read_back_and_foreign_files_are_refused(tmp_path):
    tensors = {
        "basis": np.eye(16, 3, dtype=np.float32),
        "means": np.ones((2, 3), dtype=np.float32),
        "factors": np.zeros((2, 3, 3), dtype=np.float32),
    }
    path = tmp_path / "generator.safetensors"
    Generator("gaussian", SCHEMA, {"a": 1}, tensors).save(path)
    loaded = Generator.load(path)
    assert (loaded.kind, loaded.schema, loaded.settings) == ("gaussian", SCHEMA, {"a": 1})
    np.testing.assert_array_equal(loaded.sample(4)[0], Generator("gaussian", SCHEMA, {}, tensors).sample(4)[0])

    from safetensors.numpy import save_file

    save_file({"x": np.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(InvalidInput, match="not a generator"):
        Generator.load(tmp_path / "other.safetensors")
