from pathlib import Path

import numpy as np
import pytest
import torch

from datalens_service.models.generators import networks
from datalens_service.models.generators.dct import dct_basis
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.networks import ClassNetworks
from datalens_service.models.trainer import StudentTrainer

from .builders import schema_of

SETTINGS = {"architecture": "class_networks", "z_dim": 6, "frequencies": 12, "hidden": 8}


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 16), (2, 9, 6)], ids=str)
def test_images_of_every_size(shape: tuple[int, int, int]):
    schema = schema_of(*shape)
    tensors = networks.build_network(SETTINGS, schema).tensors()
    images = networks.draw(tensors, SETTINGS, schema, np.array([0, 1, 2, 0]), np.random.default_rng(1))
    assert images.shape == (4, schema.dimensions)
    assert 0.0 <= images.min() < images.max() <= 1.0


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


def test_it_follows_directions_and_is_stored(tmp_path: Path):
    schema = schema_of(1, 8, 8)
    trainer = StudentTrainer(networks.build_network(SETTINGS, schema), schema, "cpu", learning_rate=0.01)
    for seed in range(200):
        images, _ = trainer.propose(seed, 6, balanced=True)
        trainer.update((0.9 - images).numpy(), 1.0)
    generator = Generator("network", schema, trainer.settings(), trainer.tensors())
    images, _ = generator.sample(30, seed=1)
    assert images.mean() > 200
    generator.save(tmp_path / "g.safetensors")
    np.testing.assert_array_equal(Generator.load(tmp_path / "g.safetensors").sample(30, seed=1)[0], images)
