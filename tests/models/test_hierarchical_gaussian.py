"""The fit is the textbook's without noise, and close to what all classes share where noise is loud."""

import numpy as np

from datalens_service.models.generators.outlines.hierarchical_gaussian import HierarchicalFit, shrink_eigenvalues

CLASSES, D, COUNT = 4, 6, 3000


def covariances() -> np.ndarray:
    rng = np.random.default_rng(0)
    roots = np.diag(np.arange(D, 0, -1.0)) + 0.3 * rng.standard_normal((CLASSES, D, D))
    return np.asarray(roots @ roots.swapaxes(1, 2))


def fitted(scatters: np.ndarray, noise_stddev: float = 0.0, rank: int = D) -> HierarchicalFit:
    """As a run does it, the records' number and the means being known."""
    fit = HierarchicalFit()
    fit.estimate_means(np.full(CLASSES, COUNT), np.zeros((CLASSES, D)), 0.0)
    fit.estimate_shared(scatters.sum(axis=0), noise_stddev, rank)
    fit.estimate_classes(fit.basis.T @ scatters @ fit.basis, noise_stddev)
    return fit


def products(fit: HierarchicalFit) -> np.ndarray:
    factors = fit.basis @ fit.factors
    return np.asarray(factors @ factors.swapaxes(1, 2))


def test_without_noise_covariances_are_those_of_the_classes():
    np.testing.assert_allclose(products(fitted(covariances() * COUNT)), covariances(), atol=1e-8)


def test_where_noise_drowns_a_class_it_has_what_all_share():
    shared = np.diag([9.0, 8, 7, 6, 5, 4])
    noise = np.random.default_rng(1).standard_normal((CLASSES, D, D)) * COUNT * 0.3
    scatters = shared * COUNT + (noise + noise.swapaxes(1, 2)) / np.sqrt(2)
    noisy = scatters / COUNT - shared
    fit = fitted(scatters, noise_stddev=COUNT * 0.3)
    assert np.linalg.norm(products(fit) - shared) < 0.7 * np.linalg.norm(noisy)


def test_means_without_evidence_lie_in_the_middle():
    fit, means = HierarchicalFit(), np.zeros((CLASSES, D))
    means[:, 0] = np.arange(CLASSES)
    means[:, 1:] += np.random.default_rng(0).standard_normal((CLASSES, D - 1)) * 0.1
    fit.estimate_means(np.full(CLASSES, COUNT), means * COUNT, sum_stddev=COUNT * 0.2)
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
