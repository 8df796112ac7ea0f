"""Networks from noise to images: the student of DataLens, the refiner of a Gaussian, and small ones per class."""

from typing import Any

import numpy as np
import pytest
import torch

from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Schema
from datalens_service.models.generators import networks
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.gaussian import gaussian as gaussian_model
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks import ClassNetworks, DeconvGenerator, RefinedGaussian, Refiner
from datalens_service.models.trainer import StudentTrainer

from .builders import Tensors, schema_of

SETTINGS = {"architecture": "student", "z_dim": 6, "hidden": 32, "maps": 8}
CLASS_SETTINGS = {"architecture": "class_networks", "z_dim": 6, "frequencies": 12, "hidden": 8}


def draw(
    schema: Schema, labels: list[int], seed: int = 1, weights: int = 0, settings: dict[str, Any] = SETTINGS
) -> np.ndarray:
    tensors = networks.build_network(settings, schema, weights).tensors()
    return networks.draw(tensors, settings, schema, np.array(labels), np.random.default_rng(seed))


@pytest.mark.parametrize("settings", [SETTINGS, CLASS_SETTINGS], ids=lambda settings: settings["architecture"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (2, 9, 6)], ids=str)
def test_images_of_every_size(shape: tuple[int, int, int], settings: dict):
    schema = schema_of(*shape)
    images = draw(schema, [0, 1, 2, 0], settings=settings)
    assert images.dtype == np.float32
    assert images.shape == (4, schema.dimensions)
    assert 0.0 <= images.min() < images.max() <= 1.0
    assert images.std() > 1e-4


def test_cropped_sides_are_the_first_rows_and_columns():
    """9×6 is cut from 12×8; the weights are the same, so are the pixels."""
    small, large = (DeconvGenerator(schema_of(1, *sides), 6, 32, 8, seed=3).eval() for sides in ((9, 6), (12, 8)))
    inputs, labels = torch.rand(2, 6), torch.tensor([0, 1])
    cut = large(inputs, labels).detach().view(2, 12, 8)[:, :9, :6].flatten(1)
    with torch.no_grad():
        np.testing.assert_allclose(small(inputs, labels), cut, atol=1e-6)


def test_the_default_is_the_originals_size():
    network = DeconvGenerator(schema_of(1, 28, 28, classes=10), z_dim=50)
    shapes = {name: tuple(value.shape) for name, value in network.named_parameters()}
    assert shapes["dense1.weight"] == (1024, 60)
    assert shapes["dense2.weight"] == (128 * 49, 1034)
    assert shapes["deconv1.weight"] == (138, 128, 5, 5)
    assert shapes["deconv2.weight"] == (138, 1, 5, 5)


@pytest.mark.parametrize("layer", ["dense1", "dense2", "deconv1", "deconv2"])
def test_every_layer_reads_the_label(schema: Schema, layer: str):
    """With the label's weights of all other layers at zero, the label still shows."""
    network = DeconvGenerator(schema, 6, 32, 8)
    with torch.no_grad():
        for name in {"dense1", "dense2", "deconv1", "deconv2"} - {layer}:
            weight = getattr(network, name).weight
            (weight[-3:] if name.startswith("deconv") else weight[:, -3:]).zero_()
    network.eval()
    # Of many inputs: a single one may leave every unit of a layer silent.
    inputs = torch.rand(64, 6, generator=torch.Generator().manual_seed(0))
    first, second = (network(inputs, torch.full((64,), label)) for label in (0, 1))
    assert not torch.allclose(first, second, atol=1e-7)


def test_an_image_depends_on_nothing_else_in_its_batch(schema: Schema):
    network = networks.build_network(SETTINGS, schema).eval()
    inputs = torch.rand(5, 6)
    with torch.no_grad():
        together = network(inputs, torch.arange(5) % 3)
        alone = network(inputs[:1], torch.tensor([0]))
    np.testing.assert_allclose(together[:1], alone, atol=1e-6)


def test_draws_repeat_by_seed_and_differ_without(schema: Schema):
    np.testing.assert_array_equal(draw(schema, [0, 1]), draw(schema, [0, 1]))
    assert not np.allclose(draw(schema, [0, 1]), draw(schema, [0, 1], seed=2), atol=1e-6)
    assert not np.allclose(draw(schema, [0, 1]), draw(schema, [0, 1], weights=2), atol=1e-6)


@pytest.mark.parametrize("settings", [SETTINGS, {"architecture": "refined", "rank": 4, "width": 3}])
def test_building_a_network_draws_nothing_from_the_global_generator(schema: Schema, settings: dict):
    before = torch.get_rng_state()
    networks.build_network(settings, schema)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("settings", [{}, {"architecture": "diffusion"}, {"architecture": "student"}])
def test_unknown_settings_are_refused(schema: Schema, settings: dict):
    with pytest.raises(InvalidInput, match="architecture"):
        networks.draw({}, settings, schema, np.zeros(1, dtype=np.int64), np.random.default_rng(0))


def test_tensors_of_another_network_are_refused(schema: Schema):
    tensors = networks.build_network(SETTINGS, schema).tensors()
    missing = {name: value for name, value in tensors.items() if name != "norm1.running_mean"}
    wider = {**tensors, "deconv2.bias": np.zeros(33, dtype=np.float32)}
    for wrong in (missing, wider, {**tensors, "extra": np.zeros(1, dtype=np.float32)}):
        with pytest.raises(InvalidInput, match="do not fit"):
            networks.draw(wrong, SETTINGS, schema, np.zeros(1, dtype=np.int64), np.random.default_rng(0))


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


def test_a_class_depends_on_its_own_weights_alone():
    schema = schema_of(1, 8, 8)
    network = ClassNetworks(schema, 6, 12, 8)
    inputs, labels = torch.randn(6, 6), torch.tensor([0, 1, 2, 0, 1, 2])
    before = network(inputs, labels)
    with torch.no_grad():
        for value in network.parameters():
            value[1] += 1.0
    changed = (network(inputs, labels) != before).any(dim=1)
    assert changed.tolist() == [False, True, False] * 2


def test_images_move_within_the_low_frequencies():
    schema = schema_of(1, 8, 8)
    images = ClassNetworks(schema, 6, 12, 8)(torch.randn(4, 6), torch.zeros(4, dtype=torch.int64)).detach() - 0.2
    basis = torch.from_numpy(dct_basis(schema, 12))
    np.testing.assert_allclose(images @ basis @ basis.T, images, atol=1e-6)


def test_class_networks_follow_directions():
    schema = schema_of(1, 8, 8)
    trainer = StudentTrainer(networks.build_network(CLASS_SETTINGS, schema), schema, "cpu", learning_rate=0.01)
    for seed in range(200):
        images, _ = trainer.propose(seed, 6, balanced=True)
        trainer.update((0.9 - images).numpy(), 1.0)
    assert Generator("network", schema, trainer.settings(), trainer.tensors()).sample(30, seed=1)[0].mean() > 200
