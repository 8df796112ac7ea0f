from pathlib import Path

import numpy as np
import pytest

from benchmarks.environment import data_path
from datalens_service.data.dataset import Dataset, Schema, Split

from .builders import random_images


@pytest.fixture
def mnist() -> Path:
    """Path of MNIST as NPZ, or a skip that says how to get it."""
    try:
        return data_path("mnist")
    except FileNotFoundError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def schema() -> Schema:
    return Schema(channels=1, height=6, width=5, class_names=("cat", "dog", "owl"), num_units=12)


@pytest.fixture
def dataset(schema: Schema) -> Dataset:
    train = Split(random_images(12, 6, 5, 1), np.arange(12, dtype=np.int64) % 3)
    test = Split(random_images(4, 6, 5, 1, seed=1), np.arange(4, dtype=np.int64) % 3)
    return Dataset(schema, train, test, partition_key=b"the secret key of the partition!")
