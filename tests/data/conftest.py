import os
from pathlib import Path

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split

from .builders import random_images


@pytest.fixture
def mnist() -> Path:
    """Path of MNIST as NPZ, or a skip that says where it was looked for."""
    folder = Path(os.environ.get("DATALENS_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
    path = folder / "mnist.npz"
    if not path.is_file():
        pytest.skip(f"{path} is absent; set DATALENS_TEST_DATA to the folder that holds mnist.npz")
    return path


@pytest.fixture
def schema() -> Schema:
    return Schema(channels=1, height=6, width=5, class_names=("cat", "dog", "owl"), num_units=12)


@pytest.fixture
def dataset(schema: Schema) -> Dataset:
    train = Split(random_images(12, 6, 5, 1), np.arange(12, dtype=np.int64) % 3)
    test = Split(random_images(4, 6, 5, 1, seed=1), np.arange(4, dtype=np.int64) % 3)
    return Dataset(schema, train, test, partition_key=b"the secret key of the partition!")
