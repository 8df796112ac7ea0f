"""Photographs of 64×64 and 32×32: samples of a class have its colours."""

from typing import Any

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Images
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.training import run
from tests.photographs import PARTS, photographs

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
