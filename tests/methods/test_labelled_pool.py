"""Public images with private labels: what is released, what it costs, and that it needs a pool."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Split, Upload
from datalens_service.methods import LabelledPool, Scattering
from datalens_service.methods.public.labelled_pool import tell_apart
from datalens_service.methods.sums.moments import Moments
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import Result, run

from .builders import pool, share_of_pool_right, stripes

TEACHER = Scattering(warm_start=Moments(subspace_dimensions=8), steps=3, samples=200, dimensions=20)
METHOD = LabelledPool(classifier=TEACHER)
PRIVATE, PUBLIC = stripes(), pool()


def spec_of(method: LabelledPool | Scattering, public: str | None = "ds_1") -> TrainingSpec:
    return TrainingSpec(method=method, epsilon=20.0, delta=1e-4, public_data=public)


def full_account() -> MemoryAccount:
    return MemoryAccount(spec_of(TEACHER).limit_units(PRIVATE.schema))


def made(
    method: LabelledPool | Scattering = METHOD,
    account: MemoryAccount | None = None,
    public: Upload = PUBLIC,
) -> Result:
    return run(spec_of(method), PRIVATE, account=account or full_account(), public=public)


def test_the_pool_is_released_with_labels_of_the_classifier_at_its_price() -> None:
    account = full_account()
    released = made(account=account)
    # Over the same noisy sums the classifier by itself is the same, at the same price.
    charges = list(account.charges)
    teacher = made(TEACHER, account)
    assert account.charges == charges
    tensors = released.generator.tensors
    said = teacher.model.predict(PUBLIC.train.images)
    tempered = np.sqrt(said[said.max(axis=1) >= 0.75])
    tempered /= tempered.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(tensors["soft_labels"], tempered, rtol=1e-5, atol=1e-6)
    assert [file.name for file in released.extras.files] == ["classifier.safetensors", "classifier.onnx"]
    assert released.public_inputs.images.verbatim
    assert not teacher.public_inputs.images.verbatim


def test_labels_that_the_pool_has_are_not_looked_at() -> None:
    wrong = np.random.default_rng(0).integers(0, 2, len(PUBLIC.train.labels))
    named = PUBLIC.schema.model_copy(update={"class_names": PRIVATE.schema.class_names})
    account, labelled = full_account(), Upload(named, Split(PUBLIC.train.images, wrong), None)
    released = [made(account=account, public=one) for one in (PUBLIC, labelled)]
    first, second = (result.generator.tensors["soft_labels"] for result in released)
    np.testing.assert_array_equal(first, second)


def test_an_encoder_serves_the_classifier_and_is_named() -> None:
    encoded = LabelledPool.model_validate({"classifier": {"name": "scattering", "encoder": "imagenet-lite0"}})
    assert (encoded.crops, LabelledPool().crops) == (True, False)
    assert encoded.classifier.warm_start is None
    assert encoded.public_inputs().encoder is not None
    assert LabelledPool().public_inputs().encoder is None


def test_a_student_learns_the_private_classes_from_public_images() -> None:
    assert share_of_pool_right(*made().generator.sample(200, seed=1)) > 0.8


def test_images_of_which_nothing_is_said_are_not_drawn() -> None:
    soft_labels = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    np.testing.assert_allclose(tell_apart(soft_labels), [[0.9, 0], [0, 0], [0, 0.8]])
    np.testing.assert_allclose(tell_apart(soft_labels[:2]), [[0.9, 0.1], [0, 0.4]])


def test_crops_are_handed_out_with_labels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LabelledPool, "crops", True)
    account, whole = full_account(), {image.tobytes() for image in PUBLIC.train.images}
    released = made(account=account)
    said = made(TEACHER, account).model.predict(released.generator.tensors["images"])
    likeliest = released.generator.tensors["soft_labels"].argmax(axis=1)
    np.testing.assert_array_equal(likeliest, said.argmax(axis=1))
    crops = [image.tobytes() not in whole for image in released.generator.tensors["images"]]
    assert 0.7 < np.mean(crops) < 0.8
    assert "and parts of them" in METHOD.warnings(released.plan, PRIVATE.schema)[0]


def test_previews_do_not_wait_for_crops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LabelledPool, "crops", True)
    shown: list[int] = []
    previews = SimpleNamespace(due=lambda: True, show=lambda model: shown.append(len(model.tensors["images"])))
    spec = spec_of(METHOD)
    released = run(spec, PRIVATE, account=full_account(), public=PUBLIC, previews=previews)
    assert shown
    assert max(shown) <= len(PUBLIC.train.labels) < len(released.generator.tensors["images"])


def test_a_lower_temperature_makes_labels_sharper() -> None:
    account = full_account()
    soft, sharp = (
        made(LabelledPool(classifier=TEACHER, temperature=value), account).generator for value in (1.0, 0.25)
    )
    means = [model.tensors["soft_labels"].max(axis=1).mean() for model in (soft, sharp)]
    assert means[0] < means[1]


def test_without_a_pool_it_is_refused_before_anything_is_charged() -> None:
    with pytest.raises(ValidationError, match="name some in public_data"):
        spec_of(METHOD, None)
    account = full_account()
    with pytest.raises(InvalidSpec, match="public ones"):
        run(spec_of(METHOD), PRIVATE, account=account)
    assert account.charges == []
