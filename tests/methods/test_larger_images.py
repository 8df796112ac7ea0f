"""DataLens on colour images of 64×64: every vote, both teachers."""

from typing import Any

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Images, Schema, Split
from datalens_service.methods import DataLens, ExecutionOptions
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount, UnchargedAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness
from datalens_service.run import run
from datalens_service.spec import TrainingSpec
from tests.photographs import PARTS, photographs

RECORDS, CLASSES = 40, 2
VARIANTS = {
    "dense, topagg": {},
    "dense, klevel": {"votes": "klevel"},
    "dense, count_sketch": {"votes": "count_sketch"},
    "dense, class-pure": {"shards": "class_pure"},
    "dense, after a start": {"warm_start": {"name": "moments", "subspace_dimensions": 4, "center": 0.5}},
    "conv, topagg": {"teacher": "conv"},
    "conv, class-pure, cosines": {"teacher": "conv", "shards": "class_pure", "vote_basis": "dct"},
}


def dataset(side: int) -> Dataset:
    schema = Schema(channels=3, height=side, width=side, class_names=("a", "b"), num_units=RECORDS)
    images = np.random.default_rng(0).integers(0, 256, (RECORDS, side, side, 3), dtype=np.uint8)
    return Dataset(schema, Split(images, np.arange(RECORDS) % CLASSES), None, b"k" * 32)


def finished(method: DataLens, data: Dataset) -> np.ndarray:
    units = limit_units(10.0, 1e-3)
    plan = method.plan(data.schema, units)
    training_run, account = (
        method.create_run(plan, data, TrainingRandomness(0), ExecutionOptions()),
        MemoryAccount(units),
    )
    for step in range(training_run.steps):
        training_run.step(step, account, NoiseSource())
    assert account.charged_units == plan.cost()
    return training_run.result().sample(2, seed=0)[0]


def small(**changes: object) -> DataLens:
    sizes = {"num_teachers": 4, "images_per_step": 2, "top_k": 20, "steps": 1, "teacher_batch": 2, "z_dim": 2}
    return DataLens(**(sizes | {"teacher_warmup_steps": 1, "teacher_steps": 1} | changes))


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_every_vote_and_teacher(changes: dict):
    images = finished(small(**changes), dataset(64))
    assert images.shape == (2, 64, 64, 3)
    assert images.std() > 0


EPSILON, DELTA, EACH = 50.0, 1e-4, 10
MOMENTS: dict[str, Any] = {"name": "moments", "subspace_dimensions": 20, "center": 0.5}
GUIDED: dict[str, Any] = {
    "name": "guided", "warm_start": MOMENTS, "steps": 2, "samples": 300, "epochs": 1, "spread": 1.0, "poses": False,
    "surfaces": False,
}  # fmt: skip
DIFFUSION: dict[str, Any] = {
    "name": "diffusion", "warm_start": MOMENTS, "warm_start_share": 0.6, "steps": 2, "batch": 40, "width": 8,
    "blocks": 1, "pretraining_steps": 10, "pretraining_samples": 200, "path": 2, "start_stddev": 0.2,
    "noise_multiplier": 2.0,
}  # fmt: skip
LABELLED: dict[str, Any] = DIFFUSION | {"warm_start": GUIDED}


def samples(method: dict[str, Any], data: Dataset) -> tuple[Images, np.ndarray]:
    spec = TrainingSpec.model_validate({"method": method, "epsilon": EPSILON, "delta": DELTA})
    generator = run(spec, data, account=UnchargedAccount()).generator
    assert generator is not None
    return generator.sample(EACH * len(PARTS), labels=np.repeat(np.arange(len(PARTS)), EACH))


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(
    ("method", "side"),
    [(DIFFUSION, 64), (LABELLED, 32)],
    ids=["diffusion", "diffusion from guided"],
)
def test_colours_of_each_class_are_those_of_its_photograph(method: dict[str, Any], side: int) -> None:
    data = photographs(side, 500, 1)
    images, labels = samples(method, data)
    assert images.shape == (EACH * len(PARTS), side, side, 3)
    for label, name in enumerate(PARTS):
        drawn = images[labels == label].mean(axis=(0, 1, 2))
        true = data.train.images[data.train.labels == label].mean(axis=(0, 1, 2))
        assert np.abs(drawn - true).max() < 60, name
    petals = images[labels == list(PARTS).index("petals")].mean(axis=(0, 1, 2))
    assert petals[0] > petals[1] > petals[2]
