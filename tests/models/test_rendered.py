"""Pictures that are drawn by rules: of any shape, the same for a seed, and variations that stay near."""

import numpy as np
import pytest

from datalens_service.data.dataset import Schema
from datalens_service.models.generators import rendered
from datalens_service.models.generators.rendered import Rendered


def schema_of(height: int, width: int, channels: int) -> Schema:
    return Schema(height=height, width=width, channels=channels, class_names=("a", "b"), num_units=100)


@pytest.mark.parametrize("shape", [(8, 8, 1), (33, 20, 3), (20, 33, 4), (64, 64, 2)])
def test_pictures_have_the_shape_of_the_schema_and_repeat_with_their_seed(shape: tuple[int, int, int]) -> None:
    made = Rendered(schema_of(*shape))
    images = made.random(40, 0, 3)
    assert images.shape == (40, *shape)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, Rendered(schema_of(*shape)).random(40, 0, 3))
    assert not np.array_equal(images, made.random(40, 1, 3))
    assert images.std(axis=(1, 2, 3)).mean() > 20, "most of them show something"


def test_a_variation_is_nearer_to_its_parent_than_other_pictures_are() -> None:
    made = Rendered(schema_of(32, 32, 3))
    images = made.random(200, 0, 0).astype(float)
    varied = made.variations(images.astype(np.uint8), 0, 1).astype(float)
    near = np.abs(varied - images).mean(axis=(1, 2, 3))
    far = np.abs(varied - np.roll(images, 1, axis=0)).mean(axis=(1, 2, 3))
    assert np.median(near) < 0.5 * np.median(far)
    assert (near > 0).mean() > 0.9


def test_variations_of_variations_are_drawn_and_not_only_moved() -> None:
    made = Rendered(schema_of(24, 24, 1))
    images = made.random(30, 0, 0)
    for seed in range(3):
        images = made.variations(images, 0, seed)
    again = Rendered(schema_of(24, 24, 1))
    repeated = again.random(30, 0, 0)
    for seed in range(3):
        repeated = again.variations(repeated, 0, seed)
    np.testing.assert_array_equal(images, repeated)
    foreign = Rendered(schema_of(24, 24, 1)).variations(images, 0, 7)
    assert not np.array_equal(foreign, made.variations(images, 0, 7))


def test_it_remembers_no_more_pictures_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "_REMEMBERED", 10)
    made = Rendered(schema_of(16, 16, 3))
    images = made.random(30, 0, 0)
    assert len(made._points) == 10
    assert made.variations(images, 0, 1).shape == images.shape


def test_order_of_layers_and_parameters_fill_a_point() -> None:
    points = np.zeros((1, rendered.PARAMETERS), dtype=np.float32)
    ground = rendered.render(points, (16, 16, 1))
    assert ground.max() == 0, "no colour, no waves and no layers: black"
    layer = points[0, rendered._BACKGROUND :].reshape(rendered._LAYERS, rendered._LAYER)
    layer[:, :7] = [1, 0, 0.5, 0.5, 0.5, 0.5, 0]
    layer[0, 7], layer[1, 7], layer[2, 7] = 1.0, 1.0, 0.4
    image = rendered.render(points, (16, 16, 1))[0, :, :, 0]
    assert image[8, 8] == 102, "the last layer lies on top"
    assert image[0, 0] == 0
