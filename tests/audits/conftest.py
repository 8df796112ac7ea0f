"""What attacks find in models is measured on the same noise in every run."""

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split


@pytest.fixture(autouse=True)
def _same_noise(seeded_entropy: None) -> None:
    """No test here is of the noise itself."""


@pytest.fixture(scope="session")
def digits() -> Dataset:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images, labels = (bunch.images[..., None] * 15).astype(np.uint8), bunch.target.astype(np.int64)
    schema = Schema(channels=1, height=8, width=8, class_names=tuple("0123456789"), num_units=len(labels))
    return Dataset(schema, Split(images, labels), None, b"k" * 32)
