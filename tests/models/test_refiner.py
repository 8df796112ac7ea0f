import numpy as np
import pytest
import torch

from datalens_service.data.dataset import Schema
from datalens_service.models.generators import networks
from datalens_service.models.generators.gaussian import gaussian as gaussian_model
from datalens_service.models.generators.networks import RefinedGaussian, Refiner

from .builders import Tensors, schema_of


def refined(schema: Schema, gaussian: Tensors) -> RefinedGaussian:
    network = RefinedGaussian(schema, rank=5, width=4, seed=1)
    network.load(gaussian, partial=True)
    return network


def test_starts_as_the_gaussian_itself(schema: Schema, gaussian: Tensors):
    network = refined(schema, gaussian)
    labels = np.arange(30) % 3
    images = networks.draw(network.tensors(), network.settings(), schema, labels, np.random.default_rng(5))
    expected = gaussian_model.draw(gaussian, {}, schema, labels, np.random.default_rng(5))
    np.testing.assert_array_equal(images, expected)
    assert 0.1 < (images == 0).mean() < 0.9, "the comparison must include clipped pixels"


def test_a_changed_refiner_changes_the_images(schema: Schema, gaussian: Tensors):
    network = refined(schema, gaussian)
    tensors = network.tensors()
    tensors["refiner.biases.2"] += 0.1
    labels = np.zeros(4, dtype=np.int64)
    draws = [
        networks.draw(weights, network.settings(), schema, labels, np.random.default_rng(5))
        for weights in (network.tensors(), tensors)
    ]
    assert (draws[1] >= draws[0]).all()
    assert draws[1].mean() > draws[0].mean() + 0.02


def test_inputs_are_not_clipped(schema: Schema, gaussian: Tensors):
    inputs = refined(schema, gaussian).inputs(np.zeros(20, dtype=np.int64), np.random.default_rng(0))
    assert inputs.dtype == np.float32
    assert inputs.min() < 0


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 9, 6)], ids=str)
def test_a_refiner_is_small_and_starts_at_zero(shape: tuple[int, int, int]):
    schema = schema_of(*shape, classes=10)
    refiner = Refiner(schema, width=8)
    assert sum(weight.numel() for weight in refiner.parameters()) < 5000
    correction = refiner(torch.rand(4, schema.dimensions), torch.eye(10)[:4])
    assert correction.shape == (4, schema.dimensions)
    assert (correction == 0).all()


def test_the_label_enters_every_layer(schema: Schema):
    refiner = Refiner(schema, width=4)
    images, (first, second, _) = torch.rand(1, schema.dimensions), torch.eye(3)[:, None]
    with torch.no_grad():
        refiner.weights[2].fill_(0.1)
    for bias in refiner.biases:
        with torch.no_grad():
            bias[1] = 1.0
        assert not torch.allclose(refiner(images, first), refiner(images, second), atol=1e-6)
        with torch.no_grad():
            bias[1] = 0.0
