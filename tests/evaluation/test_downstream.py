"""The standard CNN: shapes, determinism, and that it learns what there is to learn and nothing else."""

import numpy as np
import pytest
import torch

from datalens_service.data.dataset import Split
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.classifiers import judge_network
from datalens_service.evaluation.metrics.discriminant import discriminate, label_by_pixels
from datalens_service.evaluation.settings import STEPS, EvaluationSettings
from tests.evaluation.conftest import split


def score(train, test, **settings):
    """Percent of right labels."""
    network = downstream.train_network(
        train.images, train.labels, 3, **{"steps": 60, "seed": 0, "device": "cpu"} | settings
    )
    return 100 * np.mean(downstream.label_images(network, test.images, "cpu") == test.labels)


def test_it_learns_corners_and_nothing_from_shuffled_labels():
    train, test = split(500, 1), split(300, 2)
    assert score(train, test) > 95
    shuffled = np.random.default_rng(0).permutation(train.labels)
    assert score(Split(train.images, shuffled), test, steps=5) < 70


def test_few_images_are_learned_as_well_as_they_allow():
    """As many steps for twelve images as for twelve thousand."""
    assert score(split(12, 1), split(300, 2)) > 90


@pytest.mark.parametrize(
    "shape", [(4, 4, 1), (8, 8, 1), (15, 15, 2), (16, 17, 3), (28, 28, 1), (32, 5, 3), (64, 64, 4)]
)
def test_every_size_from_4_works(shape):
    rng = np.random.default_rng(0)
    images = Split(rng.integers(0, 256, (6, *shape)).astype(np.uint8), np.arange(6) % 2)
    assert 0 <= score(images, images, steps=2, mirrored=True) <= 100


@pytest.mark.parametrize(("shape", "places"), [((32, 32), 16 * 16), ((300, 200), 16 * 16), ((28, 28), 14 * 14)])
def test_the_work_does_not_grow_with_large_images(shape, places):
    first = judge_network(3, 10)[:2]
    assert first(downstream.scaled(torch.zeros(1, *shape, 3, dtype=torch.uint8)))[0, 0].numel() == places


def test_a_seed_repeats_and_leaves_the_global_state_alone():
    train = split(300, 1)
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    learn = {"num_classes": 3, "device": "cpu", "steps": 3}
    networks = [downstream.train_network(train.images, train.labels, seed=seed, **learn) for seed in (0, 0, 1)]
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(8)
    networks.append(downstream.train_network(train.images, train.labels, seed=0, **learn))
    first, again, another, later = (network[-1].weight for network in networks)
    assert torch.equal(first, again)
    assert torch.equal(first, later)
    assert not torch.equal(first, another)


@pytest.mark.parametrize("soft", [False, True])
def test_classes_are_seen_equally_often_and_their_images_too(soft):
    labels = np.repeat([0, 1, 4], [90, 9, 1])
    given = np.eye(5, dtype=np.float32)[labels] if soft else labels
    order = downstream.balanced_order(given, 900, seed=0)
    assert np.bincount(labels[order]).tolist() == [300, 300, 0, 0, 300]
    assert np.ptp(np.bincount(order)[:90]) <= 1
    for start in range(0, 900, 60):
        assert np.bincount(labels[order[start : start + 60]], minlength=5).tolist() == [20, 20, 0, 0, 20]


def test_shifts_move_each_image_for_itself_by_a_tenth_and_mirror_only_where_that_is_allowed():
    image = torch.zeros(200, 20, 20, 1, dtype=torch.uint8)
    image[:, 10, 4] = 255
    torch.manual_seed(0)
    places = downstream._moved(image, mirrored=False)[..., 0].nonzero()
    assert len(places) == 200
    assert set(places[:, 1].tolist()) == set(range(8, 13))
    assert set(places[:, 2].tolist()) == set(range(2, 7))
    turned = downstream._moved(image, mirrored=True)[..., 0].nonzero()
    assert {column > 10 for column in turned[:, 2].tolist()} == {True, False}


def test_images_are_labelled_in_uneven_batches():
    pixels = split(1100, 2).images
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(144, 3))
    own = network(downstream.scaled(torch.from_numpy(pixels))).argmax(dim=1).numpy()
    np.testing.assert_array_equal(downstream.label_images(network, pixels, "cpu"), own)


def test_the_last_step_counts_and_every_step_is_told():
    heard = []
    train, test = split(60, 1), split(60, 2)
    score(train, test, steps=6, batch_size=30, observe=lambda *progress: heard.append(progress))
    assert heard == [(done, 6) for done in range(1, 7)]


def test_images_that_cannot_be_written_are_read(recwarn):
    train, test = split(60, 1), split(60, 2)
    train.images.flags.writeable = False
    score(train, test, steps=2)
    assert train.images.flags.writeable is False
    assert not [warning for warning in recwarn if "writ" in str(warning.message)]


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({}, STEPS),
        ({"synthetic_images": 400}, STEPS),
        ({"epochs": 1, "synthetic_images": 200}, 4),
        ({"epochs": 9}, STEPS),
    ],
)
def test_steps_are_the_same_whatever_the_number_of_images_unless_passes_are_named(settings, steps):
    assert EvaluationSettings(**settings).steps == steps


def test_the_discriminant_learns_corners_and_ignores_how_frequent_a_class_is():
    train, test = split(500, 1, side=20), split(300, 2, side=20)
    rare = np.flatnonzero((train.labels > 0) | (np.arange(500) < 40))
    given = label_by_pixels(train.images[rare], train.labels[rare], test.images, 3)
    assert np.mean(given == test.labels) > 0.98


def test_the_discriminant_takes_soft_labels_and_never_names_a_class_that_it_has_not_seen():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300) * 2
    rows = rng.normal(size=(300, 4)) + 3 * labels[:, None]
    assert discriminate(rows, labels, rows, 4).tolist() == labels.tolist()
    soft = np.eye(4, dtype=np.float32)[labels] * 0.8 + np.eye(4, dtype=np.float32)[2 - labels] * 0.2
    assert np.mean(discriminate(rows, soft, rows, 4) == labels) > 0.99
