"""Rounds of votes for images of an installed generator: what they cost, and that images come nearer."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.base.errors import InvalidSpec, WorkerUnavailable
from datalens_service.data.dataset import Dataset
from datalens_service.data.digits import digits
from datalens_service.methods import PrivateEvolution
from datalens_service.methods.public.private_evolution import CandidateView, average_cells
from datalens_service.models.classifiers.encoded_features import FeatureBasis
from datalens_service.models.encoders import ScatteringEncoder
from datalens_service.models.generators import installed
from datalens_service.models.generators.pool import PublicCells
from datalens_service.privacy.accounting import LEDGER_UNITS_PER_MU_SQUARED
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.report.privacy_statement import describe_public_inputs
from datalens_service.spec import TrainingSpec
from datalens_service.training import Result, run
from tiny_generator import Tiny

from .builders import share_bright_right, stripes

METHOD = PrivateEvolution(generator="tiny", rounds=4, candidates=12, images=20)


def made(method: PrivateEvolution, private: Dataset, account: MemoryAccount | None = None, seed: int = 0) -> Result:
    spec = TrainingSpec(method=method, epsilon=20.0, delta=1e-4, seed=seed)
    return run(spec, private, account=account or MemoryAccount(spec.limit_units(private.schema)))


def test_images_come_nearer_to_the_private_ones_of_their_class_round_by_round() -> None:
    private = stripes()

    def distance(rounds: int) -> float:
        images, labels = made(METHOD.model_copy(update={"rounds": rounds}), private).generator.sample(40)
        means = np.array([private.train.images[private.train.labels == label].mean(axis=0) for label in (0, 1)])
        return float(np.abs(images - means[labels]).mean())

    far, near = distance(1), distance(6)
    assert near < far


@pytest.mark.parametrize("seed", range(4))
def test_images_of_a_class_are_those_that_its_own_records_voted_for(seed: int) -> None:
    assert share_bright_right(*made(METHOD, stripes(), seed=seed).generator.sample(40)) > 0.9


def test_no_digit_votes_for_the_negative_of_another() -> None:
    schema, train, _ = digits()
    shown, voting = train.images[:100], train.images[100:300]
    basis = FeatureBasis.from_encoder(ScatteringEncoder(), schema, "cpu", 64)
    basis.fit(np.concatenate([shown, 255 - shown]), 0.0, seed=0)
    view = CandidateView(basis)
    candidates = PublicCells(view.features(np.concatenate([shown, 255 - shown])))
    assert (candidates.nearest(view.features(voting)) < len(shown)).all()
    assert (np.linalg.norm(view.features(voting), axis=1) <= 1).all()


def test_cells_are_averages_of_an_image_of_any_size() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 24, 2), dtype=np.uint8)
    means = images.reshape(3, 8, 2, 8, 3, 2).mean(axis=(2, 4)) / 255 - 0.5
    np.testing.assert_allclose(average_cells(images), means.reshape(3, -1) / 128**0.5, rtol=1e-5)
    assert average_cells(images[:, :3, :5]).shape == (3, 3 * 5 * 2)
    np.testing.assert_array_equal(average_cells(images)[1:2], average_cells(images[1:2]))


def test_rounds_share_the_budget_evenly_at_the_golden_price() -> None:
    private = stripes()
    spec = TrainingSpec(method=METHOD, epsilon=20.0, delta=1e-4)
    account = MemoryAccount(spec.limit_units(private.schema))
    made(METHOD, private, account)
    mechanism = spec.plan(private.schema).releases[0].mechanism
    each = Fraction(mechanism.grid**2, mechanism.noise_stddev**2 - 9) * LEDGER_UNITS_PER_MU_SQUARED
    assert [label for _, label, _ in account.charges] == ["votes.cells"] * 4
    assert [units for _, _, units in account.charges] == [pytest.approx(float(each), abs=1)] * 4
    assert account.charged_units == spec.plan(private.schema).cost() <= spec.limit_units(private.schema)
    assert account.charged_units > 0.99 * spec.limit_units(private.schema)


@pytest.mark.parametrize(("epsilon", "rounds"), [(1.0, 4), (10.0, 1)])
def test_by_default_a_candidate_gets_twice_the_noise_in_votes(epsilon: float, rounds: int) -> None:
    schema = stripes().schema.model_copy(update={"num_units": 10_000})
    spec = TrainingSpec(method=PrivateEvolution(generator="tiny", rounds=rounds), epsilon=epsilon, delta=1e-5)
    votes = spec.plan(schema).releases[0].mechanism
    average = schema.num_units / schema.num_classes / votes.cells
    assert average / (votes.noise_stddev / votes.grid) == pytest.approx(2, rel=0.02)


def test_a_run_that_is_taken_up_again_makes_the_same_images() -> None:
    private, spec = stripes(), TrainingSpec(method=METHOD, epsilon=20.0, delta=1e-4)
    account = MemoryAccount(spec.limit_units(private.schema))
    first, again = (made(METHOD, private, account).generator.sample(40)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(account.charges) == 4


def test_only_what_the_operator_installed_may_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*_names: str) -> None:
        raise AssertionError("a package is imported where a request is priced")

    monkeypatch.setattr(installed, "load_plugin", loaded)
    schema = stripes().schema
    TrainingSpec(method=METHOD, epsilon=1.0).price(schema)
    for name in ("os", "tiny_generator", "tests.tiny"):
        with pytest.raises(InvalidSpec, match="No installed package"):
            TrainingSpec(method=PrivateEvolution(generator=name), epsilon=1.0).price(schema)
    for name in ("os:system", "../tiny", ""):
        with pytest.raises(ValidationError):
            PrivateEvolution(generator=name)


@pytest.mark.parametrize("images", [np.zeros((3, 12, 12, 1)), np.zeros((12, 3, 3, 1), dtype=np.uint8)])
def test_a_generator_that_breaks_its_contract_ends_the_job(monkeypatch: pytest.MonkeyPatch, images: Any) -> None:
    monkeypatch.setattr(Tiny, "random", lambda *_request: images)
    with pytest.raises(WorkerUnavailable, match="generator tiny owes"):
        made(METHOD, stripes())


def test_what_is_released_names_the_generator_and_its_package() -> None:
    said = describe_public_inputs(METHOD.public_inputs())
    assert "tiny of tiny-generator 1.0" in said[0]
    assert "tiny" in made(METHOD, stripes()).rationale
