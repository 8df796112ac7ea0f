"""One record moves one teacher, to the last bit."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from datalens_service.data.shard_batches import ShardSampler
from datalens_service.models.teachers.ensemble import TeacherEnsemble
from datalens_service.models.teachers.networks import ARCHITECTURES

from .builders import ThreePerBlock, gradients, random_batches, schema_of

TEACHERS, RECORDS, STEPS = 8, 48, 4
CHANGED_ROW, CHANGED_TEACHER = 20, 4
SCHEMA = schema_of(1, 8, 8)

Make = Callable[..., TeacherEnsemble]
Shards = list[np.ndarray]


def train(make: Make, images: np.ndarray, labels: np.ndarray, shards: Shards) -> dict[str, np.ndarray]:
    """Everything a teacher is and says after some steps: parameters, moments, gradients; N first."""
    sampler = ShardSampler(images, labels, shards, batch_size=5, seed=1)
    ensemble = make(num_teachers=TEACHERS, active=sampler.active)
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
    return lambda **settings: ThreePerBlock(architecture, schema=SCHEMA, device="cpu", seed=2, **settings)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("neighbour", [other_pixels, other_label, removed, emptied])
def test_one_record_moves_its_own_teacher_only(architecture: str, neighbour: Callable):
    assert moved(sound(architecture), neighbour) == {CHANGED_TEACHER}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_diverged_teacher_stays_alone(architecture: str):
    ensemble = sound(architecture)(num_teachers=TEACHERS)
    batches = random_batches(SCHEMA, TEACHERS, steps=2)
    batches[0][0][CHANGED_TEACHER, 1, 7] = float("nan")
    for batch in batches:
        ensemble.train_step(*batch)
    finite = torch.isfinite(gradients(ensemble, batches[0])).flatten(1).all(dim=1)
    assert finite.tolist() == [number != CHANGED_TEACHER for number in range(TEACHERS)]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_teacher_without_records_never_moves_and_says_nothing(architecture: str):
    images, labels, shards = emptied()
    fresh = sound(architecture)(num_teachers=TEACHERS).state()
    trained = train(sound(architecture), images, labels, shards)
    said = trained.pop("gradients")
    assert (said[CHANGED_TEACHER] == 0).all()
    assert (said[CHANGED_TEACHER - 1] != 0).any()
    for name, value in trained.items():
        np.testing.assert_array_equal(value[CHANGED_TEACHER], fresh[name][CHANGED_TEACHER], err_msg=name)
