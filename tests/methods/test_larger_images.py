"""DataLens on colour images of 64×64: every vote, both teachers."""

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.methods import DataLens, ExecutionOptions
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource, TrainingRandomness

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
