"""The mixture is the textbook's when the sums are exact; noise empties weak components and pulls in weak centres."""

import numpy as np

from datalens_service.data.dataset import Schema
from datalens_service.models.generators.gaussian.gaussian import GaussianFit
from datalens_service.models.generators.gaussian.mixture import MixtureFit, nearest
from datalens_service.models.generators.generator import Generator

CLASSES, RANK, COUNT = 2, 3, 4000
SCHEMA = Schema(channels=1, height=4, width=4, class_names=("a", "b"), num_units=100)


def start(width: float = 0.3) -> GaussianFit:
    """A Gaussian per class, of the same width everywhere, on the first coordinates."""
    fit = GaussianFit()
    fit.basis = np.eye(16)[:, :RANK]
    fit.means = np.array([[0.5, 0.5, 0.5], [0.2, 0.8, 0.2]])
    fit.factors = np.broadcast_to(width * np.eye(RANK), (CLASSES, RANK, RANK)).copy()
    return fit


def fitted(components: int = 2, pooling: float = 0.0, width: float = 0.3) -> MixtureFit:
    return MixtureFit(start(width), components, pooling, np.random.default_rng(0))


def table(fit: MixtureFit, counts: list[float], means: np.ndarray) -> np.ndarray:
    flat = means.reshape(-1, RANK)
    return np.concatenate([np.array(counts)[:, None], flat * np.array(counts)[:, None]], axis=1)


def test_exact_sums_give_means_weights_and_covariances():
    fit, rng = fitted(), np.random.default_rng(1)
    means = rng.uniform(0.2, 0.8, (CLASSES, 2, RANK))
    fit.estimate_centres(table(fit, [300, 100, 50, 150], means), 0.0, 0.0)
    np.testing.assert_allclose(fit.centres, means)
    residuals = rng.standard_normal((4, COUNT, RANK)) * 0.05
    counts = np.array([300, 100, 50, 150])
    scatter = np.einsum("gni,gnj->gij", residuals, residuals) / COUNT * counts[:, None, None]
    fit.estimate_covariances(scatter, 0.0)
    tensors = fit.tensors(clip_norm=2.0)
    np.testing.assert_allclose(tensors["weights"], [[0.75, 0.25], [0.25, 0.75]])
    np.testing.assert_allclose(tensors["means"], 2 * means, rtol=1e-5)
    products = tensors["factors"] @ tensors["factors"].swapaxes(-1, -2)
    expected = 4 * (scatter / counts[:, None, None]).reshape(products.shape)
    np.testing.assert_allclose(products, expected, atol=1e-6)


def test_centres_that_noise_drowns_stay_with_their_class():
    fit = fitted(width=0.1)
    means = np.full((CLASSES, 2, RANK), 0.9)
    fit.estimate_centres(table(fit, [100.0] * 4, means), 0.0, sum_stddev=1000.0)
    np.testing.assert_allclose(fit.centres, np.repeat(start().means[:, None], 2, axis=1), atol=1e-3)


def test_components_that_are_all_noise_are_never_drawn():
    fit = fitted()
    fit.estimate_centres(table(fit, [300, 12, -50, 40], np.full((CLASSES, 2, RANK), 0.5)), 5.0, 0.0)
    np.testing.assert_allclose(fit.tensors(1.0)["weights"], [[1, 0], [0, 1]])
    fit.estimate_centres(table(fit, [3, 1, 1, 3], np.full((CLASSES, 2, RANK), 0.5)), 5.0, 0.0)
    np.testing.assert_allclose(fit.tensors(1.0)["weights"], [[0.75, 0.25], [0.25, 0.75]])


def test_pooling_gives_a_weak_component_the_shape_of_its_class():
    fit = fitted(pooling=1e9)
    fit.estimate_centres(table(fit, [100, 100, 100, 100], np.full((CLASSES, 2, RANK), 0.5)), 0.0, 0.0)
    scatter = np.stack([np.diag([1.0, 0, 0]), np.diag([0, 1.0, 0]), np.eye(RANK), np.eye(RANK)])
    fit.estimate_covariances(scatter, 0.0)
    factors = fit.tensors(1.0)["factors"][0].astype(np.float64)
    for factor in factors:
        np.testing.assert_allclose(factor @ factor.T, np.diag([1, 1, 0]) / 200, atol=1e-6)


def test_directions_below_the_noise_are_dropped():
    fit = fitted()
    fit.estimate_centres(table(fit, [100] * 4, np.full((CLASSES, 2, RANK), 0.5)), 0.0, 0.0)
    fit.estimate_covariances(np.broadcast_to(np.diag([9.0, 1.0, 0.1]), (4, RANK, RANK)).copy(), 2.0)
    assert {np.linalg.matrix_rank(factor) for factor in fit.tensors(1.0)["factors"].reshape(4, RANK, RANK)} == {1}


def test_a_record_belongs_to_the_next_centre_of_its_own_class():
    centres = np.array([[[0.0, 0, 0], [1, 0, 0]], [[0.9, 0, 0], [5, 0, 0]]])
    points = np.array([[0.9, 0, 0], [0.1, 0, 0], [0.9, 0, 0], [4.0, 0, 0]])
    labels = np.array([0, 0, 1, 1])
    assert nearest(points, labels, centres).tolist() == [1, 0, 2, 3]
    alone = [int(nearest(points[[row]], labels[[row]], centres)[0]) for row in range(4)]
    assert alone == [1, 0, 2, 3], "whoever else is there"


def test_components_are_drawn_by_their_weights():
    tensors = {
        "basis": np.eye(16)[:, :RANK],
        "weights": np.array([[0.7, 0.3, 0.0], [0.0, 0.0, 1.0]]),
        "means": np.arange(18).reshape(2, 3, 3) / 20,
        "factors": np.zeros((2, 3, 3, 3)),
    }
    generator = Generator("mixture", SCHEMA, {}, {name: np.float32(value) for name, value in tensors.items()})
    images, labels = generator.sample(6000)
    first = images[labels == 0, 0, 0, 0]
    values, counts = np.unique(first, return_counts=True)
    assert values.tolist() == [0, round(255 * 3 / 20)]
    # Binomial(3000, 0.3): mean 900, standard deviation 25.
    assert abs(counts[1] - 900) < 150
    assert set(images[labels == 1, 0, 0, 0].tolist()) == {round(255 * 15 / 20)}
