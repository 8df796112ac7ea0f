"""The rejection method: private tilt and classifier decide which samples are handed out."""

from dataclasses import replace

import numpy as np
import pytest

from datalens_service.data.dataset import Schema
from datalens_service.methods import Rejection, Shapes
from datalens_service.models.classifiers.classifier import Classifier
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.level_sets.level_sets import LevelSets
from datalens_service.models.generators.level_sets.rejection import Proposals, accept, describe, propose
from datalens_service.models.generators.level_sets.tilting import find_level
from datalens_service.models.generators.requests import fill_requests
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount

from .builders import train
from .test_shapes import bars, shaded

UNITS = limit_units(20.0, 1e-4)
METHOD = Rejection(steps=4, samples=200, dimensions=20)


@pytest.fixture(scope="module")
def trained() -> tuple[Generator, MemoryAccount]:
    account = MemoryAccount(UNITS)
    return train(METHOD, bars(), UNITS, account).result(), account


def test_samples_are_of_the_class_that_was_asked_for(trained: tuple[Generator, MemoryAccount]) -> None:
    images, labels = trained[0].sample(100)
    ink = images[..., 0].astype(float)
    upright = ink.max(axis=2).sum(axis=1) > ink.max(axis=1).sum(axis=1)
    assert (upright == (labels == 0)).mean() > 0.9


def unpack_classifier(generator: Generator) -> Classifier:
    named = {key.removeprefix("classifier."): value for key, value in generator.tensors.items() if "classifier." in key}
    return Classifier(generator.schema, generator.settings["classifier"], named)


def proposals_of(generator: Generator, labels: np.ndarray) -> Proposals:
    start = {key.removeprefix("start."): value for key, value in generator.tensors.items() if "start." in key}
    return propose(start, generator.settings["start"], unpack_classifier(generator), labels, np.random.default_rng(5))


def test_samples_have_the_class_that_the_classifier_sees(trained: tuple[Generator, MemoryAccount]) -> None:
    """Whatever they were drawn for: what lies between classes teaches where their boundary is."""
    generator = trained[0]
    everything = generator.tensors | {"levels": np.full(2, -np.inf, dtype=np.float32)}
    images, labels = replace(generator, tensors=everything).sample(200, seed=1)
    assert (unpack_classifier(generator).predict(images).argmax(axis=1) == labels).all()


def test_acceptance_moves_samples_towards_records(trained: tuple[Generator, MemoryAccount]) -> None:
    """By the tilt alone, of samples that are as sharp as one another."""
    generator, train = trained[0], bars().train
    proposals = proposals_of(generator, np.arange(4000) % 2)
    alike, labels = replace(proposals, errors=np.ones(4000)), proposals.predicted
    scores = alike.scores(generator.tensors["tilt"])
    levels = np.array([find_level(scores[labels == label], 0.2) for label in (0, 1)])
    accepted = accept(alike, generator.tensors | {"levels": levels}, np.random.default_rng(0))
    assert accepted.mean() == pytest.approx(0.2, abs=0.03)
    codec = LevelSets(generator.schema, "drawings")
    records = codec.decode_records(codec.encode(train.images))
    described = describe(unpack_classifier(generator).predict_with_features(records)[0], records, codec.ink_level)
    for label in (0, 1):
        mean, of_class = described[train.labels == label].mean(axis=0), labels == label
        before, after = (
            np.linalg.norm(proposals.features[rows].mean(axis=0) - mean) for rows in (of_class, of_class & accepted)
        )
        assert after < before


def test_the_tilt_reads_released_means_alone(trained: tuple[Generator, MemoryAccount]) -> None:
    """Resumed on other records, a complete account gives the same tilt."""
    again = train(METHOD, shaded(bars()), UNITS, trained[1]).result()
    for name in ("tilt", "levels"):
        np.testing.assert_array_equal(again.tensors[name], trained[0].tensors[name])


def test_requests_that_no_prediction_fills_end_with_samples_of_their_class() -> None:
    """A classifier that never sees class 1 must not keep the sampler busy for ever."""
    labels = np.array([0, 1, 0, 1])

    def propose(classes: np.ndarray) -> np.ndarray:
        return classes[:, None].astype(np.float32)

    images = fill_requests(labels, 1, propose, lambda samples: np.zeros(len(samples), dtype=np.int64))
    assert images[1] == images[3] == 1


def test_defaults_release_sharp_samples_that_nothing_widens_or_turns() -> None:
    method = Rejection()
    assert isinstance(method.warm_start, Shapes)
    assert set(Rejection.model_fields).isdisjoint({"poses", "surfaces"})
    schema = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)
    plan = method.plan(schema, limit_units(1.0, 1e-5))
    assert [release.count for release in plan.releases] == [1, 1, 1, 1, 1, 60]


def test_units_of_several_records_are_priced_as_one() -> None:
    assert METHOD.plan(bars(records_per_unit=3).schema, UNITS).cost() <= UNITS


def test_more_classes_than_samples_leave_no_class_without_a_tilt() -> None:
    """Each class has proposals, however few samples fit the basis."""
    names = tuple(f"class {number}" for number in range(105))
    many = replace(bars(), schema=bars().schema.model_copy(update={"class_names": names}))
    start = Shapes(content="drawings", subspace_dimensions=4, spread=1.6, accepted=1.0)
    method = Rejection(warm_start=start, steps=1, samples=100, dimensions=5)
    assert np.isfinite(train(method, many, UNITS).result().tensors["levels"]).all()
