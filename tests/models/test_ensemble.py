"""The ensemble is a plain loop over separate teachers, only faster."""

import numpy as np
import pytest
import torch

from datalens_service.base.errors import CheckpointMismatch, InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import Dense

from .builders import ThreePerBlock, gradients, random_batches, schema_of
from .reference import direction, train, unstack

ARCHITECTURES = pytest.mark.parametrize("architecture", ["dense", "conv"])
SHAPES = pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 6)], ids=str)


@ARCHITECTURES
@SHAPES
def test_equals_separate_teachers_in_a_loop(architecture: str, shape: tuple[int, int, int], device: str):
    schema = schema_of(*shape)
    ensemble = ThreePerBlock(architecture, 5, schema, device, seed=7, coarse=False)
    initial = ensemble.state()
    batches = random_batches(schema, 5, steps=4)
    for batch in batches:
        ensemble.train_step(*batch)
    trained, directions = ensemble.state(), gradients(ensemble, batches[-1])
    for number in range(5):
        teacher = unstack(initial, number)
        train(teacher, schema, [(real[number], labels[number], *synthetic) for real, labels, *synthetic in batches])
        for name, value in teacher.items():
            stacked = trained[f"parameters/{name}"][number]
            np.testing.assert_allclose(stacked, value.detach().numpy(), rtol=0, atol=1e-5, err_msg=name)
            assert np.abs(stacked - initial[f"parameters/{name}"][number]).max() > 1e-4, "it must have moved"
        expected = direction(teacher, schema, *batches[-1][2:])
        # Gradients are small: relative to their largest entry, not to 1.
        np.testing.assert_allclose(directions[number], expected, rtol=0, atol=1e-4 * float(expected.abs().max()))


@ARCHITECTURES
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32)], ids=str)
def test_usual_sizes_in_blocks_of_any_size(architecture: str, shape: tuple[int, int, int]):
    schema = schema_of(*shape, classes=10)
    (batch,) = random_batches(schema, 4, steps=1, real=2, synthetic=2)
    results = []
    for block_bytes in (1, None):
        ensemble = TeacherEnsemble(architecture, 4, schema, "cpu", seed=7, block_bytes=block_bytes)
        ensemble.train_step(*batch)
        blocks = list(ensemble.image_gradients(batch[2], batch[3]))
        assert len(blocks) == (4 if block_bytes else 1)
        results.append(torch.cat(blocks))
    assert results[0].shape == (4, 2, schema.dimensions)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-4 * float(results[0].abs().max()))


@ARCHITECTURES
def test_bytes_are_read_as_fractions_of_255(architecture: str, schema: Schema):
    (batch,) = random_batches(schema, 3, steps=1)
    whole = (batch[0] * 255).to(torch.uint8)
    states = []
    for images in (whole, whole.float() / 255):
        ensemble = TeacherEnsemble(architecture, 3, schema, "cpu", seed=7)
        ensemble.train_step(images, *batch[1:])
        states.append(ensemble.state())
    for name, value in states[0].items():
        np.testing.assert_allclose(value, states[1][name], rtol=1e-4, atol=1e-7, err_msg=name)


def test_each_group_sees_its_own_synthetic_images(schema: Schema):
    batches = random_batches(schema, 4, steps=2)
    grouped, first, second = (TeacherEnsemble("dense", 4, schema, "cpu", seed=7) for _ in range(3))
    real, labels = batches[0][:2]
    grouped.train_step(
        real, labels, torch.stack([batches[0][2], batches[1][2]]), torch.stack([batches[0][3], batches[1][3]])
    )
    first.train_step(real, labels, *batches[0][2:])
    second.train_step(real, labels, *batches[1][2:])
    for name, value in grouped.state().items():
        if name != "steps":
            np.testing.assert_allclose(value[:2], first.state()[name][:2], atol=1e-6)
            np.testing.assert_allclose(value[2:], second.state()[name][2:], atol=1e-6)
    changed = grouped.state()["parameters/input.weight"] - first.state()["parameters/input.weight"]
    assert np.abs(changed[2:]).max() > 1e-4


def test_groups_must_divide_the_teachers(schema: Schema):
    real, labels, images, classes = random_batches(schema, 4, steps=1)[0]
    with pytest.raises(InvalidSpec, match="multiple"):
        TeacherEnsemble("dense", 4, schema, "cpu", seed=7).train_step(
            real, labels, images.expand(3, -1, -1), classes.expand(3, -1)
        )


def test_gradients_of_a_run_of_teachers(schema: Schema):
    ensemble = ThreePerBlock("dense", 8, schema, "cpu", seed=7)
    (batch,) = random_batches(schema, 8, steps=1)
    some = torch.cat(list(ensemble.image_gradients(batch[2], batch[3], slice(2, 7))))
    np.testing.assert_allclose(some, gradients(ensemble, batch)[2:7], rtol=1e-4, atol=1e-6)


@ARCHITECTURES
def test_teachers_start_apart_and_by_seed(architecture: str, schema: Schema):
    states = [TeacherEnsemble(architecture, 3, schema, "cpu", seed=seed).state() for seed in (7, 7, 8)]
    weights = [state["parameters/output.weight"] for state in states]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.isclose(weights[0], weights[2]).any()
    assert not np.isclose(weights[0][0], weights[0][1]).any()


@ARCHITECTURES
def test_a_restored_ensemble_goes_on_as_if_never_stopped(architecture: str, schema: Schema):
    batches = random_batches(schema, 4, steps=4)
    ensemble = ThreePerBlock(architecture, 4, schema, "cpu", seed=7)
    for batch in batches[:2]:
        ensemble.train_step(*batch)
    saved = ensemble.state()
    for batch in batches[2:]:
        ensemble.train_step(*batch)
    resumed = ThreePerBlock(architecture, 4, schema, "cpu", seed=0)
    resumed.restore(saved)
    for batch in batches[2:]:
        resumed.train_step(*batch)
    for name, value in ensemble.state().items():
        np.testing.assert_array_equal(value, resumed.state()[name], err_msg=name)


def test_a_checkpoint_of_other_teachers_is_refused(schema: Schema):
    ensemble = TeacherEnsemble("dense", 4, schema, "cpu", seed=7)
    for other in ("conv", Dense(schema, hidden=8)):
        with pytest.raises(CheckpointMismatch):
            ensemble.restore(TeacherEnsemble(other, 4, schema, "cpu", seed=7).state())
    with pytest.raises(CheckpointMismatch):
        ensemble.restore(TeacherEnsemble("dense", 5, schema, "cpu", seed=7).state())


def test_unknown_architecture_is_refused(schema: Schema):
    with pytest.raises(InvalidSpec, match="conv, dense"):
        TeacherEnsemble("transformer", 4, schema, "cpu", seed=7)


@ARCHITECTURES
def test_no_loss_is_handed_out(architecture: str, schema: Schema):
    ensemble = TeacherEnsemble(architecture, 3, schema, "cpu", seed=7)
    (batch,) = random_batches(schema, 3, steps=1)
    assert ensemble.train_step(*batch) is None
    kinds = {name.split("/")[0] for name in ensemble.state()}
    assert kinds == {"parameters", "first", "second", "steps"}
