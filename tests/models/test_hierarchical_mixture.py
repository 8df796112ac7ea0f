"""Without noise the fit is that of each component; where noise is loud, that of the class, then of all."""

from __future__ import annotations

import numpy as np

from datalens_service.models.generators.hierarchical_gaussian import HierarchicalFit
from datalens_service.models.generators.hierarchical_mixture import HierarchicalMixture

CLASSES, COMPONENTS, D, RANK, COUNT = 2, 3, 7, 5, 1000
GROUPS = CLASSES * COMPONENTS


def start() -> HierarchicalFit:
    fit = HierarchicalFit()
    fit.means = np.arange(CLASSES * D, dtype=float).reshape(CLASSES, D)
    fit.basis = np.linalg.qr(np.random.default_rng(0).standard_normal((D, RANK)))[0]
    fit.factors = np.broadcast_to(2 * np.eye(RANK), (CLASSES, RANK, RANK)).copy()
    return fit


def fitted(scatters: np.ndarray, noise_stddev: float, counts: np.ndarray | None = None) -> HierarchicalMixture:
    mixture = HierarchicalMixture(start(), COMPONENTS, np.random.default_rng(1))
    counts = np.full(GROUPS, COUNT) if counts is None else counts
    sums = np.arange(GROUPS)[:, None] * np.ones(RANK) * counts[:, None]
    mixture.centres.move(np.concatenate([counts[:, None], sums], axis=1), 1.0, 1e-6)
    mixture.estimate_covariances(scatters, noise_stddev)
    return mixture


def covariances() -> np.ndarray:
    roots = np.random.default_rng(2).standard_normal((GROUPS, RANK, RANK)) + 2 * np.eye(RANK)
    return np.asarray(roots @ roots.swapaxes(1, 2))


def products(mixture: HierarchicalMixture) -> np.ndarray:
    factors = mixture.tensors()["factors"]
    return np.asarray(factors @ factors.swapaxes(1, 2))


def test_without_noise_every_component_has_its_own_mean_and_covariance():
    mixture = fitted(covariances() * COUNT, 0.0)
    np.testing.assert_allclose(products(mixture), covariances(), atol=1e-8)
    away = mixture.tensors()["means"] - np.repeat(start().means, COMPONENTS, axis=0)
    np.testing.assert_allclose(away @ start().basis, np.arange(GROUPS)[:, None] * np.ones(RANK), atol=1e-6)
    np.testing.assert_allclose(mixture.tensors()["weights"], 1 / COMPONENTS)


def symmetric_noise(stddev: float) -> np.ndarray:
    noise = np.random.default_rng(3).standard_normal((GROUPS, RANK, RANK)) * stddev
    return np.asarray((noise + noise.swapaxes(1, 2)) / np.sqrt(2))


def test_where_noise_drowns_components_they_have_what_their_class_has():
    """Classes differ, their components do not."""
    classes = np.repeat(np.stack([np.diag([40.0, 30, 20, 10, 5]), np.diag([5.0, 10, 20, 30, 40])]), COMPONENTS, axis=0)
    stddev = 3.0 * COUNT
    scatters = classes * COUNT + symmetric_noise(stddev)
    error = np.linalg.norm(products(fitted(scatters, stddev)) - classes)
    assert error < 0.75 * np.linalg.norm(scatters / COUNT - classes)
    assert error < 0.5 * np.linalg.norm(classes - classes.mean(axis=0))


def test_a_component_that_looks_empty_is_never_drawn_and_has_the_shape_of_its_class():
    counts = np.array([COUNT, COUNT, -3.0, COUNT, COUNT, COUNT])
    scatters = np.broadcast_to(np.eye(RANK) * COUNT, (GROUPS, RANK, RANK)).copy()
    scatters[2] = 7.0
    mixture = fitted(scatters, 5.0, counts)
    np.testing.assert_allclose(mixture.tensors()["weights"][0], [0.5, 0.5, 0])
    np.testing.assert_allclose(products(mixture)[2], np.eye(RANK), atol=0.1)
