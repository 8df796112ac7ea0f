"""The fit is the textbook's when the sums are exact, and drops what the noise alone could make."""

import numpy as np
import pytest

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Schema
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.level_sets.hierarchical_gaussian import HierarchicalFit, shrink_eigenvalues

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


CLASSES, D, RECORDS = 4, 6, 3000


def covariances() -> np.ndarray:
    rng = np.random.default_rng(0)
    roots = np.diag(np.arange(D, 0, -1.0)) + 0.3 * rng.standard_normal((CLASSES, D, D))
    return np.asarray(roots @ roots.swapaxes(1, 2))


def fitted(scatters: np.ndarray, noise_stddev: float = 0.0, rank: int = D) -> HierarchicalFit:
    """As a run does it, the records' number and the means being known."""
    fit = HierarchicalFit()
    fit.estimate_means(np.full(CLASSES, RECORDS), np.zeros((CLASSES, D)), 0.0)
    fit.estimate_shared(scatters.sum(axis=0), noise_stddev, rank)
    fit.estimate_classes(fit.basis.T @ scatters @ fit.basis, noise_stddev)
    return fit


def products(fit: HierarchicalFit) -> np.ndarray:
    factors = fit.basis @ fit.factors
    return np.asarray(factors @ factors.swapaxes(1, 2))


def test_without_noise_covariances_are_those_of_the_classes():
    np.testing.assert_allclose(products(fitted(covariances() * RECORDS)), covariances(), atol=1e-8)


def test_where_noise_drowns_a_class_it_has_what_all_share():
    shared = np.diag([9.0, 8, 7, 6, 5, 4])
    noise = np.random.default_rng(1).standard_normal((CLASSES, D, D)) * RECORDS * 0.3
    scatters = shared * RECORDS + (noise + noise.swapaxes(1, 2)) / np.sqrt(2)
    noisy = scatters / RECORDS - shared
    fit = fitted(scatters, noise_stddev=RECORDS * 0.3)
    assert np.linalg.norm(products(fit) - shared) < 0.7 * np.linalg.norm(noisy)


def test_means_without_evidence_lie_in_the_middle():
    fit, means = HierarchicalFit(), np.zeros((CLASSES, D))
    means[:, 0] = np.arange(CLASSES)
    means[:, 1:] += np.random.default_rng(0).standard_normal((CLASSES, D - 1)) * 0.1
    fit.estimate_means(np.full(CLASSES, RECORDS), means * RECORDS, sum_stddev=RECORDS * 0.2)
    np.testing.assert_allclose(fit.means[:, 0], np.arange(CLASSES), atol=0.1)
    assert np.ptp(fit.means[:, 1:], axis=0).max() < 1e-9


def test_one_class_keeps_its_mean():
    fit = HierarchicalFit()
    fit.estimate_means(np.array([10.0]), np.full((1, D), 20.0), 1.0)
    np.testing.assert_array_equal(fit.means, np.full((1, D), 2.0))


def test_eigenvalues_below_the_edge_of_the_noise_vanish():
    before, edge = np.array([20.0, 5.0]), 2.0
    values = np.append(before + edge**2 / before, [3.9, -1.0])
    np.testing.assert_allclose(shrink_eigenvalues(values, edge), [*(before * (1 - (edge / before) ** 2)), 0, 0])


def test_a_class_that_looks_empty_gives_finite_numbers():
    fit = HierarchicalFit()
    fit.estimate_means(np.array([-3.0, 100.0]), np.ones((2, D)), 1.0)
    fit.estimate_shared(-np.eye(D), 5.0, 3)
    fit.estimate_classes(np.zeros((2, 3, 3)), 5.0)
    assert np.isfinite(products(fit)).all()
