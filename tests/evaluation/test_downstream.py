"""The standard CNN: shapes, determinism, and that it learns what there is to learn and nothing else."""

import numpy as np
import pytest
import torch

from datalens_service.data.dataset import Split
from datalens_service.evaluation.metrics import classifiers, downstream
from tests.evaluation.conftest import split


def score(train, test, **settings):
    """Percent of right labels."""
    network = downstream.trained(train.images, train.labels, 3, **{"epochs": 12, "seed": 0, "device": "cpu"} | settings)
    return 100 * np.mean(downstream.labelled(network, test.images, "cpu") == test.labels)


def test_it_learns_corners_and_nothing_from_shuffled_labels():
    train, test = split(500, 1), split(300, 2)
    assert score(train, test) > 95
    shuffled = np.random.default_rng(0).permutation(train.labels)
    assert score(Split(train.images, shuffled), test, epochs=1) < 70


def test_the_network_is_the_one_of_the_paper():
    network = classifiers.standard_network((28, 28, 1), 10)
    # 3·3·1·32 + 32, 3·3·32·64 + 64, 5·5·64·64 + 64 (valid convolutions: 28 → 13 → 5), 64·10 + 10
    assert [parameter.numel() for parameter in network.parameters()] == [288, 32, 18432, 64, 102400, 64, 640, 10]
    assert [layer.p for layer in network if isinstance(layer, torch.nn.Dropout)] == [0.2, 0.25]


@pytest.mark.parametrize(
    "shape", [(4, 4, 1), (8, 8, 1), (15, 15, 2), (16, 17, 3), (28, 28, 1), (32, 5, 3), (64, 64, 4)]
)
def test_every_size_from_4_works(shape):
    rng = np.random.default_rng(0)
    images = Split(rng.integers(0, 256, (6, *shape)).astype(np.uint8), np.arange(6) % 2)
    assert 0 <= score(images, images, epochs=1) <= 100


def test_a_seed_repeats_and_leaves_the_global_state_alone():
    train, test = split(300, 1), split(300, 2)
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first = score(train, test, epochs=1)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(8)
    assert score(train, test, epochs=1) == first
    assert len({score(train, test, epochs=1, seed=seed) for seed in range(3)}) > 1


def test_images_are_labelled_in_uneven_batches():
    pixels = split(1100, 2).images
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 3))
    own = network(downstream.scaled(torch.from_numpy(pixels))).argmax(dim=1).numpy()
    np.testing.assert_array_equal(downstream.labelled(network, pixels, "cpu"), own)


@pytest.mark.parametrize("shape", [(4, 4, 1), (8, 9, 3), (28, 28, 1)])
def test_the_stronger_classifier_takes_every_size_and_learns(shape):
    network = classifiers.residual_network(shape, 7)
    images = torch.zeros(2, shape[2], *shape[:2])
    assert network(images).shape == (2, 7)
    assert sum(parameter.numel() for parameter in network.parameters()) > 70_000


def test_the_stronger_classifier_learns_corners():
    assert score(split(300, 1), split(200, 2), epochs=6, classifier=classifiers.RESIDUAL) > 90


def test_the_last_epoch_counts_and_every_step_is_told():
    heard = []
    train, test = split(60, 1), split(60, 2)
    score(train, test, epochs=3, batch_size=30, observe=lambda *progress: heard.append(progress))
    assert heard == [(seen, 180) for seen in range(30, 181, 30)]


def test_images_that_cannot_be_written_are_read(recwarn):
    train, test = split(60, 1), split(60, 2)
    train.images.flags.writeable = False
    score(train, test, epochs=1)
    assert train.images.flags.writeable is False
    assert not [warning for warning in recwarn if "writ" in str(warning.message)]
