"""Figures are measured on persons from whom nothing was learned; who was left out is said to the owner alone."""

import dataclasses

import numpy as np
import pytest

from datalens_service.data.dataset import NOBODY, Dataset, Split, Upload
from datalens_service.evaluation import EvaluationSettings
from datalens_service.evaluation.evaluate import evaluate_classifier
from datalens_service.evaluation.metrics.reference import (
    Reference,
    fidelity_reference,
    find_caveats,
    halves,
    test_reference,
)

from .test_evaluate import SMALL, evaluated

test_reference.__test__ = False


def with_groups(dataset: Dataset, test: list[int]) -> Dataset:
    """One person a training image; `test` says of the first test images whose they are, the others are of nobody."""
    groups = np.full(len(dataset.test.labels), NOBODY)
    groups[: len(test)] = test
    train = dataclasses.replace(dataset.train, groups=np.arange(len(dataset.train.labels)))
    return dataclasses.replace(dataset, train=train, test=dataclasses.replace(dataset.test, groups=groups))


def without_first(dataset: Dataset, count: int) -> Dataset:
    return dataclasses.replace(dataset, test=dataset.test.take(np.arange(count, len(dataset.test.labels))))


def test_figures_are_those_of_other_persons(generator, dataset):
    settings = SMALL.model_copy(update={"seeds": 1, "epochs": 1})
    shared, alone = with_groups(dataset, list(range(50))), without_first(with_groups(dataset, []), 50)
    found, expected = evaluated(generator, shared, settings), evaluated(generator, alone, settings)
    assert [one.value for one in found.measures] == [one.value for one in expected.measures]
    assert [one.test_images for one in found.per_class] == [one.test_images for one in expected.per_class]
    assert all("150 test images of other persons" in one.protocol for one in found.measures)


def test_a_test_split_without_other_persons_has_a_reason_in_place_of_figures(generator, dataset):
    heard = []
    found = evaluated(
        generator, with_groups(dataset, list(range(200))), SMALL, observe=lambda *event: heard.append(event)
    )
    assert found.measures == ()
    assert {one.reason for one in found.unavailable} == {"All of these images are of persons who have training images."}
    assert heard[-1][0] == heard[-1][1], "what observers hear is no function of who is who"


class Right:
    """Gives every image the class that it has."""

    def __init__(self, split: Split) -> None:
        self._labels = {image.tobytes(): label for image, label in zip(split.images, split.labels, strict=True)}

    def predict(self, images):
        return np.eye(10, dtype=np.float32)[[self._labels[image.tobytes()] for image in images]]


def test_a_classifier_is_tested_on_other_persons(dataset):
    shared = with_groups(dataset, list(range(50)))
    found = evaluate_classifier(Right(dataset.test), shared, EvaluationSettings(), lambda *_: None).measured.for_owner()
    assert sum(map(sum, found.confusion.counts)) == 150
    nobody_else = with_groups(dataset, list(range(200)))
    found = evaluate_classifier(Right(dataset.test), nobody_else, EvaluationSettings(), lambda *_: None)
    (missing,) = found.measured.for_owner().unavailable
    assert "persons who have training images" in missing.reason
    assert found.measures == ()


@pytest.mark.parametrize("reference", ["test", "holdout"])
def test_fidelity_is_measured_on_other_persons(dataset, reference):
    shared = with_groups(dataset, list(range(50)))
    aside = Upload(shared.schema, dataclasses.replace(shared.test, units=shared.test.groups), None)
    settings = EvaluationSettings.model_validate({"reference": reference, "holdout": "ds_x"})
    assert len(fidelity_reference(shared, aside, settings).split.labels) == 150


def test_halves_share_no_person():
    rng = np.random.default_rng(3)
    groups = rng.choice(30, 300, p=rng.dirichlet(np.ones(30)))
    groups[::7] = NOBODY
    images = np.arange(300, dtype=np.int64)
    reference = Reference(Split(np.zeros((300, 1, 1, 1), np.uint8), images, None, groups), "public", "x")
    for most in (10, 70, 1000):
        learned, compared = halves(reference, most)
        assert 0 < len(learned.labels) == len(compared.labels) <= most
        assert not set(learned.labels) & set(compared.labels)
        assert not (set(learned.groups) & set(compared.groups)) - {NOBODY}


def test_the_owner_hears_how_many_were_left_out(dataset):
    shared = with_groups(dataset, [0, 0, 1, NOBODY])
    aside = Upload(shared.schema, shared.test, None)
    own, other = find_caveats(shared, aside)
    assert own.startswith("3 images (2 persons) of 200 are of persons who have training images")
    assert "3 images (2 persons) of 200 in the data set that was set aside" in other
    assert find_caveats(dataset, Upload(dataset.schema, dataset.test, None)) == ()
    assert find_caveats(with_groups(dataset, [9999]), None) == ()


def test_the_owner_hears_that_persons_of_test_images_were_not_kept(dataset):
    known = with_groups(dataset, [])
    stored_before = dataclasses.replace(known, test=dataset.test)
    (caveat,) = find_caveats(stored_before, None)
    assert "an earlier version did not keep it" in caveat
