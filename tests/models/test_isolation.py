"""One record moves one teacher, to the last bit, and the check would notice if it were otherwise."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from datalens_service.data.shard_batches import ShardSampler
from datalens_service.models.adam import AdamState
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import Conv, Dense, Parameters

from .builders import ThreePerBlock, gradients, random_batches, schema_of

TEACHERS, RECORDS, STEPS = 8, 48, 4
CHANGED_ROW, CHANGED_TEACHER = 20, 4
SCHEMA = schema_of(1, 8, 8)
NETWORKS = {"dense": Dense, "conv": Conv}

Make = Callable[..., TeacherEnsemble]
Shards = list[np.ndarray]


def train(make: Make, images: np.ndarray, labels: np.ndarray, shards: Shards) -> dict[str, np.ndarray]:
    """Everything a teacher is and says after some steps: parameters, moments, gradients; N first."""
    sampler = ShardSampler(images, labels, shards, batch_size=5, seed=1)
    ensemble = make(num_teachers=TEACHERS, schema=SCHEMA, device="cpu", seed=2, active=sampler.active)
    synthetic = random_batches(SCHEMA, 1, STEPS)
    for step in range(STEPS):
        ensemble.train_step(*sampler.batch(step), *synthetic[step][2:])
    said = gradients(ensemble, synthetic[-1]).numpy()
    return {name: value for name, value in ensemble.state().items() if name != "steps"} | {"gradients": said}


def records() -> tuple[np.ndarray, np.ndarray, Shards]:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (RECORDS, 8, 8, 1)).astype(np.uint8)
    return images, rng.integers(0, 3, RECORDS), [np.arange(RECORDS)[start::TEACHERS] for start in range(TEACHERS)]


def other_pixels() -> tuple[np.ndarray, np.ndarray, Shards]:
    images, labels, shards = records()
    images[CHANGED_ROW] = 255 - images[CHANGED_ROW]
    return images, labels, shards


def other_label() -> tuple[np.ndarray, np.ndarray, Shards]:
    images, labels, shards = records()
    labels[CHANGED_ROW] = (labels[CHANGED_ROW] + 1) % 3
    return images, labels, shards


def removed() -> tuple[np.ndarray, np.ndarray, Shards]:
    images, labels, shards = records()
    shards[CHANGED_TEACHER] = shards[CHANGED_TEACHER][shards[CHANGED_TEACHER] != CHANGED_ROW]
    return images, labels, shards


def emptied() -> tuple[np.ndarray, np.ndarray, Shards]:
    images, labels, shards = records()
    shards[CHANGED_TEACHER] = np.zeros(0, dtype=np.int64)
    return images, labels, shards


def moved(make: Make, neighbour: Callable[[], tuple[np.ndarray, np.ndarray, Shards]]) -> set[int]:
    """Teachers that differ in any bit of anything between two neighbouring data sets."""
    before, after = train(make, *records()), train(make, *neighbour())
    return {
        number
        for number in range(TEACHERS)
        for name in before
        if before[name][number].tobytes() != after[name][number].tobytes()
    }


def sound(architecture: str) -> Make:
    return lambda **settings: ThreePerBlock(NETWORKS[architecture](SCHEMA), **settings)


class SharedMoments(ThreePerBlock):
    """The planted bug of the original: blocks take turns in one slot and share its optimiser state."""

    def _apply_adam(self, adam_state: AdamState, gradients: Parameters, idle: Tensor) -> None:
        first = self._adam_state.block(slice(0, len(idle)))
        super()._apply_adam(AdamState(adam_state.parameters, first.first, first.second), gradients, idle)


def across_teachers(network: type[Dense] | type[Conv]) -> type[Dense] | type[Conv]:
    class Normalised(network):  # type: ignore[misc, valid-type]
        """The planted bug: batch norm over the stacked axis."""

        def rest(self, parameters: Parameters, features: Tensor, classes: Tensor) -> Tensor:
            axes = (0, features.ndim - 1)
            mean, variance = features.mean(axes, keepdim=True), features.var(axes, keepdim=True)
            return super().rest(parameters, (features - mean) / (variance + 1e-5).sqrt(), classes)

    return Normalised


@pytest.mark.parametrize("architecture", NETWORKS)
@pytest.mark.parametrize("neighbour", [other_pixels, other_label, removed, emptied])
def test_one_record_moves_its_own_teacher_only(architecture: str, neighbour: Callable):
    assert moved(sound(architecture), neighbour) == {CHANGED_TEACHER}


@pytest.mark.parametrize("architecture", NETWORKS)
def test_the_check_sees_a_shared_optimiser_state(architecture: str):
    make: Make = lambda **settings: SharedMoments(architecture, **settings)  # noqa: E731
    found = moved(make, other_pixels)
    assert CHANGED_TEACHER + 3 in found, "the teacher that takes the slot next"


@pytest.mark.parametrize("architecture", NETWORKS)
def test_the_check_sees_batch_norm_across_teachers(architecture: str):
    network = across_teachers(NETWORKS[architecture])
    make: Make = lambda **settings: ThreePerBlock(network(SCHEMA), **settings)  # noqa: E731
    assert moved(make, other_pixels) == {3, 4, 5}, "all of its block"


@pytest.mark.parametrize("architecture", NETWORKS)
def test_a_diverged_teacher_stays_alone(architecture: str):
    ensemble = sound(architecture)(num_teachers=TEACHERS, schema=SCHEMA, device="cpu", seed=2)
    batches = random_batches(SCHEMA, TEACHERS, steps=2)
    batches[0][0][CHANGED_TEACHER, 1, 7] = float("nan")
    for batch in batches:
        ensemble.train_step(*batch)
    finite = torch.isfinite(gradients(ensemble, batches[0])).flatten(1).all(dim=1)
    assert finite.tolist() == [number != CHANGED_TEACHER for number in range(TEACHERS)]


@pytest.mark.parametrize("architecture", NETWORKS)
def test_a_teacher_without_records_never_moves_and_says_nothing(architecture: str):
    images, labels, shards = emptied()
    fresh = sound(architecture)(num_teachers=TEACHERS, schema=SCHEMA, device="cpu", seed=2).state()
    trained = train(sound(architecture), images, labels, shards)
    said = trained.pop("gradients")
    assert (said[CHANGED_TEACHER] == 0).all()
    assert (said[CHANGED_TEACHER - 1] != 0).any()
    for name, value in trained.items():
        np.testing.assert_array_equal(value[CHANGED_TEACHER], fresh[name][CHANGED_TEACHER], err_msg=name)
