import numpy as np
import pytest
import torch

from datalens_service.base.errors import CheckpointMismatch, InvalidInput, InvalidSpec, StateConflict
from datalens_service.data.dataset import Schema
from datalens_service.models.generators import networks
from datalens_service.models.generators.networks import ImageNetwork
from datalens_service.models.trainer import StudentTrainer

from .builders import Tensors

STUDENT = {"architecture": "student", "z_dim": 6, "hidden": 32, "maps": 8}
REFINED = {"architecture": "refined", "rank": 5, "width": 4}
BOTH = pytest.mark.parametrize("settings", [STUDENT, REFINED], ids=["student", "refined"])


def network(settings: dict, schema: Schema, gaussian: Tensors, seed: int = 0) -> ImageNetwork:
    found = networks.build_network(settings, schema, seed)
    if settings is REFINED:
        found.load(gaussian, partial=True)
    return found


def trainer(settings: dict, schema: Schema, gaussian: Tensors, **options: float) -> StudentTrainer:
    return StudentTrainer(network(settings, schema, gaussian), schema, "cpu", **options)


def drawn(found: StudentTrainer, schema: Schema, labels: np.ndarray) -> np.ndarray:
    return networks.draw(found.tensors(), found.settings(), schema, labels, np.random.default_rng(9))


@BOTH
def test_proposals_are_images_with_labels_and_repeat_by_seed(settings: dict, schema: Schema, gaussian: Tensors):
    found = trainer(settings, schema, gaussian)
    images, labels = found.propose(3, 60)
    assert images.shape == (60, schema.dimensions)
    assert not images.requires_grad
    assert 0.0 <= float(images.min()) < float(images.max()) <= 1.0
    assert labels.dtype == torch.int64
    assert torch.bincount(labels, minlength=3).min() > 5
    again = found.propose(3, 60)
    assert torch.equal(images, again[0])
    assert torch.equal(labels, again[1])
    assert not torch.equal(labels, found.propose(4, 60)[1])


@BOTH
def test_balanced_labels_come_in_class_order(settings: dict, schema: Schema, gaussian: Tensors):
    _, labels = trainer(settings, schema, gaussian).propose(3, 6, balanced=True)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("images", "balanced"), [(1, False), (4, True)])
def test_impossible_batches_are_refused(images: int, balanced: bool, schema: Schema, gaussian: Tensors):
    with pytest.raises(InvalidSpec, match="multiple of 3"):
        trainer(STUDENT, schema, gaussian).propose(0, images, balanced=balanced)


@BOTH
def test_repeated_directions_move_the_images_that_way(settings: dict, schema: Schema, gaussian: Tensors):
    found = trainer(settings, schema, gaussian, updates=2)
    labels = np.arange(90) % 3
    start = drawn(found, schema, labels).mean(axis=1)
    for step in range(60):
        _, classes = found.propose(step, 30)
        # Class 0 brighter, class 1 darker, class 2 as it is.
        wanted = np.array([1.0, -1.0, 0.0], dtype=np.float32)[classes.numpy()]
        found.update(np.repeat(wanted[:, None], schema.dimensions, axis=1), 0.05)
    change = drawn(found, schema, labels).mean(axis=1) - start
    brighter, darker, same = (change[labels == label].mean() for label in range(3))
    assert brighter > 0.05 > -0.05 > darker
    assert abs(same) < 0.6 * min(brighter, -darker)


@BOTH
def test_further_updates_approach_the_same_targets(settings: dict, schema: Schema, gaussian: Tensors):
    direction = np.ones((12, schema.dimensions), dtype=np.float32)
    reached = []
    for updates in (1, 20):
        found = trainer(settings, schema, gaussian, updates=updates)
        before, _ = found.propose(0, 12)
        found.update(direction, 0.1)
        after, _ = found.propose(0, 12)
        reached.append(float((after - before).mean()))
    assert 0.0 < reached[0] < reached[1] < 0.1


def test_a_clipped_pixel_follows_votes_in_both_directions_alike(schema: Schema, gaussian: Tensors):
    """Noise of mean zero must not brighten the background, so opposite votes give opposite steps."""
    moves = []
    for sign in (1.0, -1.0):
        found = trainer(REFINED, schema, gaussian)
        before = found.tensors()
        images, _ = found.propose(0, 12)
        clipped = (images == 0).numpy()
        assert clipped.mean() > 0.1
        found.update((sign * clipped).astype(np.float32), 0.01)
        after = found.tensors()
        moves.append({name: after[name] - before[name] for name in after})
    assert max(np.abs(move).max() for move in moves[0].values()) > 1e-4
    for name, move in moves[0].items():
        np.testing.assert_allclose(move, -moves[1][name], atol=1e-9, err_msg=name)


@BOTH
def test_updates_are_adams(settings: dict, schema: Schema, gaussian: Tensors):
    found, reference = trainer(settings, schema, gaussian, updates=2), network(settings, schema, gaussian)
    optimiser = torch.optim.Adam(reference.parameters(), lr=1e-3, betas=(0.5, 0.999))
    direction = np.random.default_rng(0).standard_normal((6, schema.dimensions)).astype(np.float32)
    for step in range(3):
        _, labels = found.propose(step, 6, balanced=True)
        inputs = torch.from_numpy(reference.inputs(labels.numpy(), np.random.default_rng(step)))
        targets = reference(inputs, labels).detach() + 0.1 * torch.from_numpy(direction)
        for _ in range(2):
            optimiser.zero_grad()
            (reference(inputs, labels) - targets).square().sum().backward()
            optimiser.step()
        found.update(direction, 0.1)
    tensors = found.tensors()
    for name, value in reference.named_parameters():
        np.testing.assert_allclose(tensors[name], value.detach(), atol=1e-5, err_msg=name)


@BOTH
def test_no_direction_without_a_fresh_proposal(settings: dict, schema: Schema, gaussian: Tensors):
    found = trainer(settings, schema, gaussian)
    direction = np.zeros((4, schema.dimensions), dtype=np.float32)
    with pytest.raises(StateConflict):
        found.update(direction, 0.1)
    found.propose(0, 4)
    found.update(direction, 0.1)
    with pytest.raises(StateConflict):
        found.update(direction, 0.1)


def test_the_released_weights_are_the_running_average(schema: Schema, gaussian: Tensors):
    plain, averaged = (trainer(REFINED, schema, gaussian, averaging=decay) for decay in (0.0, 0.3))
    expected = plain.tensors()
    for step in range(4):
        for found in (plain, averaged):
            found.propose(step, 6)
            found.update(np.ones((6, schema.dimensions), dtype=np.float32), 0.1)
        decay = min(0.3, (2 + step) / (11 + step))
        expected = {name: decay * value + (1 - decay) * plain.tensors()[name] for name, value in expected.items()}
    for name, value in averaged.tensors().items():
        np.testing.assert_allclose(value, expected[name], atol=1e-6, err_msg=name)
    assert not np.allclose(averaged.tensors()["refiner.biases.2"], plain.tensors()["refiner.biases.2"], atol=1e-5)


def test_released_batch_statistics_fit_the_released_weights(schema: Schema, gaussian: Tensors):
    """Drawn one by one, images look as they did in training, where a batch was normalised by itself."""
    found = trainer(STUDENT, schema, gaussian)
    for step in range(5):
        found.propose(step, 30)
        found.update(np.ones((30, schema.dimensions), dtype=np.float32), 0.5)
    labels = np.arange(300) % 3
    released = drawn(found, schema, labels)
    reference = network(STUDENT, schema, gaussian)
    reference.load(found.tensors())
    reference.train()
    inputs = torch.from_numpy(reference.inputs(labels, np.random.default_rng(9)))
    with torch.no_grad():
        trained = reference(inputs, torch.from_numpy(labels)).numpy()
    assert np.abs(released - trained).mean() < 0.05 * released.std()


@BOTH
def test_releasing_changes_nothing_in_training(settings: dict, schema: Schema, gaussian: Tensors):
    found = trainer(settings, schema, gaussian, averaging=0.5)
    found.propose(0, 6)
    before = found.state()
    found.tensors()
    for name, value in found.state().items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


@BOTH
def test_a_restored_trainer_goes_on_as_if_never_stopped(settings: dict, schema: Schema, gaussian: Tensors):
    def go_on(found: StudentTrainer, steps: range) -> None:
        for step in steps:
            images, _ = found.propose(step, 6)
            found.update(np.sin(np.arange(images.numel(), dtype=np.float32)).reshape(images.shape), 0.1)

    whole = trainer(settings, schema, gaussian, averaging=0.9)
    go_on(whole, range(3))
    saved = whole.state()
    go_on(whole, range(3, 6))
    resumed = StudentTrainer(networks.build_network(settings, schema, seed=8), schema, "cpu", averaging=0.9)
    resumed.restore(saved)
    go_on(resumed, range(3, 6))
    for name, value in whole.state().items():
        np.testing.assert_array_equal(value, resumed.state()[name], err_msg=name)
    for name, value in whole.tensors().items():
        np.testing.assert_array_equal(value, resumed.tensors()[name], err_msg=name)


def test_a_checkpoint_of_another_network_is_refused(schema: Schema, gaussian: Tensors):
    with pytest.raises(CheckpointMismatch):
        trainer(STUDENT, schema, gaussian).restore(trainer(REFINED, schema, gaussian).state())


def test_a_student_has_no_place_for_a_gaussian(schema: Schema, gaussian: Tensors):
    with pytest.raises(InvalidInput, match="do not fit"):
        trainer(STUDENT, schema, gaussian).load_initial(gaussian)


def test_a_released_gaussian_can_arrive_after_the_start(schema: Schema, gaussian: Tensors):
    late = StudentTrainer(networks.build_network(REFINED, schema), schema, "cpu")
    late.load_initial(gaussian)
    early = trainer(REFINED, schema, gaussian)
    for name, value in early.tensors().items():
        np.testing.assert_array_equal(value, late.tensors()[name], err_msg=name)
