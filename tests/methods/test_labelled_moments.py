"""Images of pooled moments with soft labels: what is released, at which price, and what the labels say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datalens_service.methods import LabelledMoments, PooledMoments, Scattering
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.classifiers.encoded_features import SMALL_CONSTANT
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount, UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import Result, run

from .builders import advance, share_right, start, stripes

METHOD = LabelledMoments(steps=30, samples=400, dimensions=20)


@pytest.fixture(scope="module")
def made() -> tuple[Result, MemoryAccount]:
    spec, private = TrainingSpec(method=METHOD, epsilon=20.0, delta=1e-4), stripes()
    account = MemoryAccount(spec.limit_units(private.schema))
    return run(spec, private, account=account), account


def read_classifier(released: Result, folder: Path) -> Classifier:
    """The one that is handed out beside the images."""
    [weights, _graph] = released.extras.files
    weights.write(folder / weights.name)
    return Classifier.load(folder / weights.name)


def test_pooled_moments_and_gradients_are_charged_as_planned(made: tuple[Result, MemoryAccount]) -> None:
    released, account = made
    assert [release.count for release in released.plan.releases] == [1, 1, 1, 30]
    assert sum(units for _, _, units in account.charges) == released.plan.cost()
    moments = PooledMoments().plan(stripes().schema, int(0.6 * account.limit_units))
    kinds = [type(release.mechanism) for release in released.plan.releases]
    assert kinds[:3] == [type(release.mechanism) for release in moments.releases]


def test_labels_lie_between_the_class_drawn_and_what_the_released_classifier_sees(
    made: tuple[Result, MemoryAccount], tmp_path: Path
) -> None:
    released, _ = made
    images, labels = released.generator.sample(300, seed=2)
    again, soft = released.generator.draw_training_set(300, seed=2)
    np.testing.assert_array_equal(again, images)
    seen = np.sqrt(read_classifier(released, tmp_path).predict(images))
    wanted = np.eye(2)[labels] / 4 + seen / seen.sum(axis=1, keepdims=True) * 3 / 4
    np.testing.assert_allclose(soft, wanted, atol=1e-5)
    np.testing.assert_allclose(soft.sum(axis=1), 1, atol=1e-5)
    assert (soft.max(axis=1) < 1).any()


def test_each_frequency_has_texture_of_its_own_beside_clear_directions(made: tuple[Result, MemoryAccount]) -> None:
    tensors = made[0].generator.tensors
    *deviations, grey = tensors["start.deviations"]
    assert min(deviations) ** 2 >= np.square(tensors["start.factors"]).sum() / len(deviations)
    assert grey == 0


def test_a_bias_has_little_length_beside_features_of_few_records() -> None:
    for method, constant in ((METHOD, SMALL_CONSTANT), (Scattering(samples=400, dimensions=20), 1.0)):
        started = start(method, stripes(), limit_units(20.0, 1e-4))
        assert advance(started, UnchargedAccount(), 4).local("layer").basis.constant == constant


def test_the_classifier_learned_from_records(made: tuple[Result, MemoryAccount], tmp_path: Path) -> None:
    assert share_right(read_classifier(made[0], tmp_path)) > 0.9


def test_a_saved_model_gives_the_same_labels(made: tuple[Result, MemoryAccount], tmp_path: Path) -> None:
    released = made[0].generator
    released.save(tmp_path / "generator.safetensors")
    loaded = Generator.load(tmp_path / "generator.safetensors")
    np.testing.assert_array_equal(loaded.soft_labels(50, seed=3), released.soft_labels(50, seed=3))
