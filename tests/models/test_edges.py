"""Edges for images to look at: steeper slopes and less grain, at the same places and with the same tones."""

import numpy as np
import pytest

from datalens_service.base.arrays import Floats32
from datalens_service.data.dataset import Schema
from datalens_service.models.generators.edges import reduce_variation, sharpen, wants_edges

SIDE = 32


def slopes() -> Floats32:
    """Blurred edges between two colours, at another column in each image."""
    column = np.arange(SIDE) - np.array([10, 16, 21])[:, None]
    share = 1 / (1 + np.exp(-column / 2.5))[:, None, None, :]
    dark, light = (np.array(colour).reshape(1, 3, 1, 1) for colour in ((0.2, 0.3, 0.4), (0.8, 0.6, 0.5)))
    return np.broadcast_to(dark + share * (light - dark), (3, 3, SIDE, SIDE)).astype(np.float32)


def test_a_slope_becomes_an_edge_at_its_place() -> None:
    images = slopes()
    sharp = sharpen(images)
    steepest = [np.abs(np.diff(shown[:, 0, SIDE // 2], axis=1)).max(axis=1) for shown in (images, sharp)]
    assert (steepest[1] > 3 * steepest[0]).all()
    before, after = ((shown[:, 0, SIDE // 2] > 0.5).sum(axis=1) for shown in (images, sharp))
    np.testing.assert_allclose(after, before, atol=1)
    assert images.min() - 1e-6 <= sharp.min() <= sharp.max() <= images.max() + 1e-6, "no tone is new"


def test_grain_goes_and_a_flat_image_stays() -> None:
    flat = np.full((1, 3, SIDE, SIDE), 0.4, dtype=np.float32)
    np.testing.assert_allclose(sharpen(flat), flat, atol=1e-6)
    grain = np.random.default_rng(0).normal(0, 0.03, flat.shape).astype(np.float32)
    assert reduce_variation(flat + grain).std() < 0.2 * grain.std()


def test_variation_is_minimized() -> None:
    """No image on the way to another one has less energy."""
    rng, weight = np.random.default_rng(0), 0.05
    images = (slopes() + rng.normal(0, 0.05, (3, 3, SIDE, SIDE))).astype(np.float32)
    found = reduce_variation(images)

    def energy(shown: Floats32) -> float:
        right, below = np.diff(shown, axis=3)[..., :-1, :], np.diff(shown, axis=2)[..., :, :-1]
        varies = np.sqrt((right**2 + below**2).sum(axis=1)).sum()
        return float(((shown - images) ** 2).sum() / 2 + weight * varies)

    for other in (images, slopes(), images.mean(axis=(2, 3), keepdims=True) + 0 * images):
        assert energy(found) < energy(found + 0.3 * (other - found))


def test_an_image_does_not_depend_on_those_beside_it() -> None:
    images = np.tile(slopes(), (40, 1, 1, 1))
    np.testing.assert_array_equal(sharpen(images)[-3:], sharpen(images[:3]))


@pytest.mark.parametrize(
    ("channels", "height", "width", "wanted"), [(3, 48, 64, True), (1, 64, 64, False), (3, 32, 64, False)]
)
def test_images_in_colour_of_sizes_that_were_looked_at_get_edges(
    channels: int, height: int, width: int, wanted: bool
) -> None:
    schema = Schema(channels=channels, height=height, width=width, class_names=("a", "b"), num_units=500)
    assert wants_edges(schema) is wanted
