from collections.abc import Iterator

import numpy as np
import pytest
import torch

from datalens_service.data.dataset import Schema
from tests.torch_threads import torch_threads

from .builders import Tensors, schema_of


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """Small networks are slower, and busy machines much slower, with more."""
    with torch_threads(1):
        yield


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]
)
def device(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def schema() -> Schema:
    return schema_of(1, 8, 8)


@pytest.fixture
def gaussian(schema: Schema) -> Tensors:
    """A Gaussian of rank 5 with a good share of its pixels outside [0, 1]."""
    rng = np.random.default_rng(3)
    basis, _ = np.linalg.qr(rng.standard_normal((schema.dimensions, 5)))
    means = rng.standard_normal((schema.num_classes, 5)) * 2
    factors = rng.standard_normal((schema.num_classes, 5, 5)) * 0.5
    parts = {"basis": basis, "means": means, "factors": factors}
    return {name: np.ascontiguousarray(part, dtype=np.float32) for name, part in parts.items()}
