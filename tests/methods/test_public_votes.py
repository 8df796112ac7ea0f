"""Votes for public images: cells, shares, and that what is near is handed out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datalens_service.data.dataset import Schema
from datalens_service.methods import PublicVotes
from datalens_service.methods.public.public_votes import capped_shares, plan_cells
from datalens_service.models.generators.denoiser import public_denoiser
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.pool import PublicCells
from datalens_service.models.vote_labels import label_softly
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.report.phrases import HELD_PUBLIC
from datalens_service.report.privacy_statement import describe_public_inputs
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

from .builders import pool, share_bright_right, share_of_pool_right, stripes


def test_private_records_choose_public_images_that_look_like_them() -> None:
    private = stripes()
    spec = TrainingSpec(method=PublicVotes(cells=20), epsilon=20.0, delta=1e-4, public_data="ds_1")
    account = MemoryAccount(spec.limit_units(private.schema))
    released = run(spec, private, account=account, public=pool())
    assert [label for _, label, _ in account.charges] == ["votes.cells"]
    assert share_of_pool_right(*released.generator.sample(200)) > 0.8
    soft = released.generator.soft_labels(200)
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-5)


def test_crops_are_in_cells_and_handed_out_with_labels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PublicVotes, "crops", True)
    private, method = stripes(), PublicVotes(cells=20)
    spec = TrainingSpec(method=method, epsilon=20.0, delta=1e-4, public_data="ds_1")
    account = MemoryAccount(spec.limit_units(private.schema))
    released = run(spec, private, account=account, public=pool()).generator
    whole = {image.tobytes() for image in pool().train.images}
    crops = [image.tobytes() not in whole for image in released.tensors["images"]]
    assert 0.5 < np.mean(crops) < 0.9
    assert share_bright_right(*released.sample(200)) > 0.7


def test_if_not_verbatim_a_denoiser_of_the_pool_draws_others_in_their_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(public_denoiser, "_STEPS", 200)
    private = stripes()
    method = PublicVotes(cells=20, verbatim=False)
    spec = TrainingSpec(method=method, epsilon=20.0, delta=1e-4, public_data="ds_1")
    assert TrainingSpec(method=PublicVotes(cells=20), epsilon=20.0, delta=1e-4, public_data="ds_1").plan(
        private.schema
    ) == spec.plan(private.schema)
    account = MemoryAccount(spec.limit_units(private.schema))
    released = run(spec, private, account=account, public=pool())
    assert [label for _, label, _ in account.charges] == ["votes.cells"]
    assert released.public_inputs.images is not None
    assert (released.public_inputs.images.verbatim, released.public_inputs.images.held) == (False, True)
    assert HELD_PUBLIC in describe_public_inputs(released.public_inputs)[0]
    images, labels = released.generator.sample(100)
    known = {image.tobytes() for image in pool().train.images}
    assert not known & {image.tobytes() for image in images}
    assert share_bright_right(images, labels) > 0.8
    assert released.generator.soft_labels(100) is None
    released.generator.save(tmp_path / "generator.safetensors")
    np.testing.assert_array_equal(Generator.load(tmp_path / "generator.safetensors").sample(100)[0], images)


def test_only_verbatim_and_on_an_encoder_with_weights_there_are_crops() -> None:
    encoded = PublicVotes.model_validate({"encoder": "imagenet-lite0"})
    assert (encoded.crops, encoded.model_copy(update={"verbatim": False}).crops, PublicVotes().crops) == (
        True,
        False,
        False,
    )


def test_cells_are_a_tenth_of_the_records_of_a_class_over_the_noise() -> None:
    schema = Schema(channels=3, height=32, width=32, class_names=tuple("abcde"), num_units=5_000)
    assert plan_cells(schema, limit_units(1.0, 1e-5), 10) == 27
    assert plan_cells(schema, limit_units(10.0, 1e-5), 10) == pytest.approx(203, abs=3)
    assert plan_cells(schema.model_copy(update={"num_units": 50}), limit_units(1.0, 1e-5), 10) == 8


def test_equally_near_cells_go_to_the_first_whatever_the_order_of_rows() -> None:
    cells = PublicCells(np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32))
    rows = np.array([[0.6, 0.6], [0.9, 0.1], [0.1, 0.9], [0.6, 0.6]], dtype=np.float32)
    assert cells.nearest(rows).tolist() == [0, 0, 1, 0]
    assert cells.nearest(rows[::-1]).tolist() == [0, 1, 0, 0]


def test_few_votes_are_noise_and_no_cell_gives_more_than_its_cap() -> None:
    votes = np.array([[60.0, 30.0, 9.0, 1.0, -4.0], [0.5, -1.0, 0.2, 0.1, -3.0]])
    shares = capped_shares(votes, 5.0, 0.4)
    np.testing.assert_allclose(shares[0], [0.503, 0.382, 0.115, 0, 0], atol=0.001)
    np.testing.assert_allclose(shares[1], [1, 0, 0, 0, 0])
    np.testing.assert_allclose(capped_shares(-votes[1:], 5.0, 0.4).sum(axis=1), 1)


def test_soft_labels_are_what_many_cells_say_together_of_an_image() -> None:
    angles = np.linspace(0, np.pi / 2, 9)
    features = np.stack([np.cos(angles), np.sin(angles), np.ones(9)], axis=1).astype(np.float32) / np.float32(2**0.5)
    votes = np.linspace(40, 0, 9) + np.array([0, 0, -25, 0, 0, 0, 0, 0, 0])
    soft = label_softly(features, features, np.stack([votes, np.linspace(0, 40, 9)]))
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-5)
    assert np.all(np.diff(soft[:, 0]) < 0), "the one cell that lacks votes is between others that have them"
    np.testing.assert_allclose(label_softly(features, features, np.full((2, 9), -1.0)), 0.5, atol=0.01)
