import numpy as np
import pytest

from datalens_service.data.dataset import Schema
from datalens_service.data.export import WrittenImages

from ..builders import random_images


@pytest.fixture(params=[1, 3], ids=["grey", "colour"])
def release(request: pytest.FixtureRequest) -> WrittenImages:
    """Seven images of three classes whose names need care."""
    names = ("T-shirt/top", "Übergang", "../..")
    schema = Schema(channels=request.param, height=6, width=5, class_names=names, num_units=100)
    labels = np.array([2, 0, 1, 0, 2, 2, 1], dtype=np.int64)
    return WrittenImages(random_images(7, 6, 5, request.param), labels, schema, {"epsilon": 1.0, "owner": "Zoë"})
