"""Pooled moments: without noise the textbook fit, with noise shrunk to what stands out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema
from datalens_service.methods import AnyMethod, Mixture, Moments, PooledMoments, Shapes
from datalens_service.methods.sums.pooled_moments import plan_frequencies
from datalens_service.models.generators.dct import count_planes
from datalens_service.models.generators.gaussian import gaussian
from datalens_service.models.generators.gaussian.pooled_gaussian import PooledGaussianFit, shrink_bands
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run
from tests.stepped_runs import SteppedRun

from .builders import NoNoise, dataset, train
from .test_moments import CLASSES, COUNT, SIDE, blobs


def fitted(data: Dataset, epsilon: float, noise: NoNoise | None = None, **changes: Any) -> SteppedRun:
    return train(PooledMoments(**changes), data, limit_units(epsilon, 1e-4), noise=noise)


def test_without_noise_it_is_the_textbook_fit():
    """All frequencies of the images, no clipping: class means, and the covariance within classes."""
    records = blobs().train
    run = fitted(blobs(), 1e9, NoNoise(), frequencies=SIDE * SIDE, clip_norm=1.0, residual_norm=1.0)
    tensors = run.result().tensors
    pixels = records.images.reshape(COUNT, -1) / 255.0
    own = np.stack([pixels[records.labels == label].mean(axis=0) for label in range(CLASSES)])
    np.testing.assert_allclose((tensors["basis"] @ tensors["means"].T).T, own, atol=2e-3)
    within = np.cov((pixels - own[records.labels]).T, bias=True)
    factor = tensors["basis"] @ tensors["factors"][0]
    np.testing.assert_allclose(factor @ factor.T, within, atol=2e-3)


def test_samples_look_like_their_class():
    images, labels = fitted(blobs(), 10.0).result().sample(300, seed=1)
    bars = np.stack([images[:, 2 * label : 2 * label + 2].mean(axis=(1, 2, 3)) for label in range(CLASSES)], axis=1)
    assert (bars.argmax(axis=1) == labels).mean() > 0.95


def test_colours_and_large_images_come_back_in_their_size():
    labels = np.arange(60, dtype=np.int64) % 2
    images = np.full((60, 96, 64, 3), 40, dtype=np.uint8)
    images[labels == 1, :48, :, 0] = 220
    drawn, wanted = fitted(dataset(images, labels), 90.0).result().sample(40)
    assert drawn.shape == (40, 96, 64, 3)
    assert drawn[wanted == 1, :48, :, 0].mean() > drawn[wanted == 1, 48:, :, 0].mean() + 60


def test_colour_images_to_look_at_have_edges_and_those_to_learn_from_have_none() -> None:
    labels = np.arange(400, dtype=np.int64) % 2
    column = np.arange(40)[:, None] - np.where(labels, 10, 20)[:, None, None, None]
    images = np.broadcast_to(60 + 120 / (1 + np.exp(-column / 3)), (400, 40, 40, 3))
    look, teach = (fitted(dataset(images, labels), 20.0, texture=texture).result() for texture in (0.0, 1.0))
    assert (look.settings, teach.settings) == ({"edges": True}, {})
    shown, plain = (model.sample(40)[0].astype(float) for model in (look, look.to_learn_from()))
    steepest = [np.abs(np.diff(drawn, axis=2)).max(axis=(1, 2, 3)).mean() for drawn in (shown, plain)]
    assert steepest[0] > 2 * steepest[1]


def test_a_larger_budget_and_more_records_pay_for_more_frequencies():
    def planned(records: int, epsilon: float, classes: int = 10) -> int:
        names = tuple(f"class {number}" for number in range(classes))
        schema = Schema(channels=1, height=64, width=64, class_names=names, num_units=records)
        return plan_frequencies(schema, limit_units(epsilon, 1e-5))

    assert (
        16 <= planned(500, 0.2) < planned(500, 1) < planned(2_000, 1) < planned(2_000, 5) < planned(20_000, 5) <= 1024
    )
    assert planned(2_000, 1, classes=2) > planned(2_000, 1)


def test_noise_alone_is_shrunk_to_nothing_and_signal_stays():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(10, 64))
    values[:, :8] += rng.normal(0, 30, (10, 8))
    shrunk = shrink_bands(values, np.ones(10), 8)
    assert np.abs(shrunk[:, 8:]).max() < 0.5 * np.abs(values[:, 8:]).max()
    np.testing.assert_allclose(shrunk[:, :8], values[:, :8], rtol=0.01)


def test_a_class_that_is_noisier_is_shrunk_more():
    values = np.random.default_rng(0).normal(0, 2, (5, 16))
    factors = shrink_bands(values, np.array([0.1, 0.1, 0.1, 0.1, 4.0]), 16) / values
    assert factors[4].max() < 0.7 < factors[:4].min()


def test_a_covariance_of_noise_alone_has_no_directions():
    rng, stddev = np.random.default_rng(0), 3.0
    upper = np.triu(rng.normal(0, stddev, (200, 200)))
    noise = upper + np.triu(upper, 1).T
    fit = PooledGaussianFit(residual_norm=1.0)
    fit.estimate_center(np.append(100.0, np.zeros(200)), 0.01)
    fit.estimate_covariance(noise * 0.97, stddev, np.arange(200))
    assert fit.factor.shape == (200, 0)
    direction = np.zeros(200)
    direction[7] = 1
    # Its eigenvalue is about 100 + 42²/100: what noise adds to it is taken away again.
    fit.estimate_covariance(noise + 100 * np.outer(direction, direction), stddev, np.arange(200))
    assert fit.factor.shape == (200, 1)
    assert (fit.factor**2).sum() == pytest.approx(1.0, rel=0.1)


def test_the_covariance_is_of_the_lowest_frequencies_that_the_budget_pays_for():
    """Of colour images the lowest of each plane; other frequencies do not vary."""
    labels = np.arange(400, dtype=np.int64) % 2
    brightness = np.random.default_rng(0).integers(20, 235, (400, 1, 1, 1)).astype(np.uint8)
    images = np.broadcast_to(brightness, (400, 16, 16, 3))
    data = dataset(images, labels)
    run, schema = fitted(data, 5.0, NoNoise()), data.schema
    fit, varied = run.local("fit"), run.local("varying")
    summed, varying = plan_frequencies(schema, limit_units(5.0, 1e-4)), len(varied)
    assert varying < summed == len(fit.center)
    luma, varying_luma = count_planes(schema, summed)[0], count_planes(schema, varying)[0]
    assert varied.tolist()[:varying_luma] == list(range(varying_luma))
    assert varied[varying_luma] == luma
    variances = np.square(fit.factor).sum(axis=1)
    assert not np.delete(variances, varied).any()
    assert variances[varied].any()


def test_a_plan_says_how_much_detail_is_modelled():
    schema = Schema(channels=1, height=64, width=64, class_names=("a", "b"), num_units=2_000)
    method = PooledMoments(frequencies=256)
    (warning,) = method.warnings(method.plan(schema, limit_units(1.0, 1e-5)), schema)
    assert "16 by 16 pixels" in warning
    large = schema.model_copy(update={"channels": 3})
    spec = TrainingSpec(method=method, epsilon=1.0, delta=1e-5)
    assert len(spec.price(large).warnings) == 1, "larger images are brought to a working size, and say so once"


def test_what_no_direction_holds_is_known_on_average():
    fit = PooledGaussianFit(residual_norm=1.0)
    fit.estimate_center(np.append(1000.0, np.zeros(50)), 0.01)
    fit.estimate_covariance(1000 * np.diag(np.repeat([4.0, 1.0], 24)), 1000.0, np.arange(48))
    assert fit.factor.shape == (50, 0)
    assert fit.rest == pytest.approx(2.5)


def test_with_texture_every_frequency_varies_as_much_as_on_average_and_without_it_none_does_beside_the_directions():
    run = fitted(blobs(), 3.0, texture=1.0)
    fit, clip_norm = run.local("fit"), run.local("view").clip_norm
    mean = fit.rest + np.square(fit.factor).sum() / len(run.local("varying"))
    *deviations, grey = run.result().tensors["deviations"] / clip_norm
    np.testing.assert_allclose(np.square(deviations), mean, rtol=1e-3)
    assert grey == 0, "the center is no frequency"
    assert "deviations" not in fitted(blobs(), 3.0).result().tensors


@pytest.mark.parametrize("texture", [0.0, 1.0])
def test_a_sample_has_the_class_that_the_released_moments_see_in_it(texture: float) -> None:
    """Classes overlap so that samples of the Gaussians alone are hardly oftener right than by chance."""
    rng = np.random.default_rng(0)
    labels = np.arange(3_000, dtype=np.int64) % 2
    pixels = 128 + 20 * rng.standard_normal((3_000, 8, 8, 1)) + 4 * (labels * 2 - 1)[:, None, None, None]
    pixels += 40 * rng.standard_normal((3_000, 1, 1, 1))
    generator = fitted(dataset(pixels.clip(0, 255).astype(np.uint8), labels), 20.0, texture=texture).result()
    images, drawn = generator.sample(500, seed=1)
    brightness = images.mean(axis=(1, 2, 3))
    assert ((brightness > 128) == drawn).mean() > 0.8
    assert brightness.std() > 20, "they vary as records do"


def test_a_generator_without_a_discriminant_draws_as_it_did() -> None:
    """Files of version 1.1.0 have neither a discriminant nor deviations."""
    tensors = {
        name: values
        for name, values in fitted(blobs(), 3.0).result().tensors.items()
        if name in ("basis", "means", "factors")
    }
    labels = np.arange(20, dtype=np.int64) % CLASSES
    drawn = gaussian.draw(tensors, {}, blobs().schema, labels, np.random.default_rng(3))
    noise = np.random.default_rng(3).standard_normal((20, tensors["factors"].shape[2]), dtype=np.float32)
    points = tensors["means"][labels] + noise @ tensors["factors"][0].T
    np.testing.assert_allclose(drawn, (points @ tensors["basis"].T).clip(0, 1), atol=1e-6)


def test_a_small_class_beside_a_large_one_keeps_its_mean() -> None:
    """The mean of the large one is next to the mean of all, and says nothing of how far others are."""
    values, variances = np.zeros((3, 16)), np.array([1e-6, 0.01, 0.01])
    values[1:] = np.random.default_rng(0).normal(0, 1, (2, 16))
    np.testing.assert_allclose(shrink_bands(values, variances, 8)[1:], values[1:], rtol=0.1)


def test_an_empty_class_does_not_decide_over_others() -> None:
    values = np.random.default_rng(0).normal(0, 1, (10, 16))
    shrunk = shrink_bands(np.vstack([values, np.full((1, 16), 100.0)]), np.array([*[0.01] * 10, 1e5]), 8)
    np.testing.assert_allclose(shrunk[:10], values, rtol=0.1)
    assert np.abs(shrunk[10]).max() < 0.01


def test_a_class_without_records_gets_the_common_mean():
    schema = blobs().schema.model_copy(update={"class_names": ("a", "b", "c", "nobody")})
    run = fitted(replace(blobs(), schema=schema), 8.0)
    offsets = np.linalg.norm(run.local("fit").offsets, axis=1)
    assert offsets[3] < 0.5 * offsets[:3].min()


@pytest.mark.parametrize("method", [PooledMoments(), Moments(subspace_dimensions=6), Mixture(components=2), Shapes()])
def test_images_have_the_classes_as_often_as_released_counts_say(method: AnyMethod) -> None:
    data = blobs()
    rows = np.concatenate(
        [np.flatnonzero(data.train.labels == label)[:kept] for label, kept in enumerate((90, 30, 15))]
    )
    unequal = dataset(data.train.images[rows], data.train.labels[rows], ("a", "b", "c"))
    _, labels = train(method, unequal, limit_units(50.0, 1e-4)).result().sample(900)
    np.testing.assert_allclose(np.bincount(labels), [600, 200, 100], atol=40)
    spec = TrainingSpec(method=method, epsilon=50.0, delta=1e-4, class_shares=(1, 1, 0))
    declared = run(spec, unequal, account=UnchargedAccount())
    assert np.bincount(declared.generator.sample(900)[1]).tolist() == [450, 450]
    assert declared.rationale.endswith("as was declared.")


def test_units_of_several_records_pay_for_as_many_frequencies():
    schema = Schema(channels=1, height=64, width=64, class_names=("a", "b"), num_units=500)
    units, grouped = limit_units(5.0, 1e-5), schema.model_copy(update={"unit": "person", "records_per_unit": 4})
    assert plan_frequencies(grouped, units) == plan_frequencies(schema, units)


def test_directions_of_faces_lose_the_texture_that_noise_gave_them():
    """A direction of low frequencies comes back without what the noise put into the others."""
    rng, stddev, size = np.random.default_rng(0), 1.0, 400
    upper = np.triu(rng.normal(0, stddev, (size, size)))
    smooth = np.concatenate([rng.standard_normal(24), np.zeros(size - 24)])
    smooth /= np.linalg.norm(smooth)
    fit = PooledGaussianFit(residual_norm=1.0)
    fit.estimate_center(np.append(100.0, np.zeros(size)), 0.01)
    scatter = upper + np.triu(upper, 1).T + 50 * np.outer(smooth, smooth)
    fit.estimate_covariance(scatter, stddev, np.arange(size))
    (direction,) = fit.factor.T / np.linalg.norm(fit.factor)
    noisy = np.linalg.eigh(scatter)[1][:, -1]
    assert abs(direction @ smooth) > 0.97 > abs(noisy @ smooth) + 0.02
    assert np.linalg.norm(direction[24:]) < 0.4 * np.linalg.norm(noisy[24:])
