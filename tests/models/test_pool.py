"""Public images as a model: what is drawn, in which shares, and that pixels stay as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from datalens_service.data.dataset import Schema
from datalens_service.models.generators.generator import Generator
from datalens_service.models.generators.pool import choose, pack

WEIGHTS = np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0, 0]], dtype=np.float32)
SOFT = np.array([[0.7, 0.3], [0.6, 0.4], [0.1, 0.9], [0.5, 0.5]], dtype=np.float32)


def pool(channels: int = 1) -> Generator:
    """Four images of one brightness each; the last stands for no class."""
    images = np.tile(np.array([0, 1, 254, 99], np.uint8)[:, None, None, None], (1, 5, 4, channels))
    images[:, 0, 0, -1] = 7
    schema = Schema(channels=channels, height=5, width=4, class_names=("a", "b"), num_units=10)
    return Generator("pool", schema, {}, pack(images, WEIGHTS, SOFT))


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_drawn_as_they_are_and_none_that_stands_for_no_class(channels: int, tmp_path: Path) -> None:
    model = pool(channels)
    model.save(tmp_path / "pool.safetensors")
    loaded = Generator.load(tmp_path / "pool.safetensors")
    images, labels = loaded.sample(400)
    assert labels.tolist() == [0, 1] * 200
    assert images.dtype == np.uint8
    assert {tuple(image.ravel()) for image in images} == {tuple(image.ravel()) for image in model.tensors["images"]}
    assert loaded.verbatim
    np.testing.assert_array_equal(images, model.sample(400)[0])


def test_an_image_comes_as_often_as_its_weight_says() -> None:
    rows = choose(pool().tensors, np.zeros(160, np.int64), np.random.default_rng(0))
    assert np.bincount(rows, minlength=3).tolist() == pytest.approx([90, 50, 20], abs=1)


def test_images_do_not_repeat_before_all_came_whose_share_allows_it() -> None:
    tensors = {"weights": np.ones((50, 1), np.float32), "images": np.zeros((50, 2, 2, 1), np.uint8)}
    assert len(set(choose(tensors, np.zeros(50, np.int64), np.random.default_rng(1)).tolist())) == 50


def test_soft_labels_belong_to_the_images_that_are_drawn() -> None:
    model = pool()
    images, _ = model.sample(5000, seed=3)
    soft = model.soft_labels(5000, seed=3)
    assert soft is not None
    brightness = images[:, 2, 2, 0]
    for value, shares in zip((0, 1, 254), SOFT, strict=False):
        np.testing.assert_allclose(
            soft[brightness == value], np.tile(shares, ((brightness == value).sum(), 1)), rtol=1e-6
        )


def test_other_generators_have_no_soft_labels(tmp_path: Path) -> None:
    tensors = {"mean": np.zeros((2, 20), np.float32)}
    model = Generator("gaussian", pool().schema, {}, tensors)
    assert model.soft_labels(4) is None
    assert not model.verbatim
