"""Changes of contrast and texture: what they keep, how many images they touch, how strong and how coarse they are."""

import numpy as np
import torch

from datalens_service.models.generators.augmentation import (
    augment_affine,
    augment_texture,
    crop_photographs,
    random_affine_maps,
)

GREY = torch.full((3000, 1, 28, 28), 0.5)


def _relative_texture(images):
    """Per image: the standard deviation of its pixels in parts of their mean."""
    planes = images.flatten(1)
    return planes.std(dim=1) / planes.mean(dim=1)


def test_some_images_keep_contrast_and_texture_and_most_do_not():
    changed = augment_texture(GREY, np.random.default_rng(0))
    textured = _relative_texture(changed) > 1e-6
    assert 0.66 < float(textured.float().mean()) < 0.74
    contrasts = changed[~textured].flatten(1).mean(dim=1) / 0.5
    kept = (contrasts - 1).abs() < 1e-6
    assert 0.25 < float(kept.float().mean()) < 0.35
    assert 0.7 <= float(contrasts.min()) < 0.75
    assert 1.55 < float(contrasts.max()) <= 1.6


def test_texture_is_as_strong_as_promised():
    relative = _relative_texture(augment_texture(GREY, np.random.default_rng(0)))
    assert 0.4 < float(relative.max()) < 0.65
    assert 0.14 < float(relative.mean()) < 0.2  # 0.7 of them, strengths 0 to 0.5


def test_texture_has_a_grain():
    images = augment_texture(GREY, np.random.default_rng(0))
    images = images[_relative_texture(images) > 0.05].squeeze(1)
    centred = images - images.mean(dim=(1, 2), keepdim=True)
    variance = centred.square().mean(dim=(1, 2))
    neighbours = (centred[:, :, 1:] * centred[:, :, :-1]).mean(dim=(1, 2)) / variance
    fine, coarse = float(neighbours.quantile(0.1)), float(neighbours.quantile(0.9))
    assert 0.45 < fine < 0.7 < 0.8 < coarse < 0.95


def test_black_stays_black_and_no_pixel_leaves_its_range():
    images = torch.rand(200, 3, 16, 12, generator=torch.Generator().manual_seed(0))
    images[:, :, :4] = 0
    changed = augment_texture(images, np.random.default_rng(0))
    assert changed.shape == images.shape
    assert float(changed[:, :, :4].abs().max()) == 0
    assert float(changed.min()) >= 0
    assert float(changed.max()) <= 1
    assert not torch.equal(changed, images)


def test_channels_share_a_texture():
    images = torch.full((50, 3, 16, 16), 0.25)
    changed = augment_texture(images, np.random.default_rng(0))
    torch.testing.assert_close(changed[:, 0], changed[:, 2])


def test_the_same_numbers_give_the_same_surfaces_beyond_a_block():
    images = torch.full((4100, 1, 4, 4), 0.5)
    first, again = (augment_texture(images, np.random.default_rng(7)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first[:4], first[4096:])


def test_a_strip_is_turned_like_the_middle_of_a_square():
    rng = np.random.default_rng(0)
    square = torch.zeros(20, 1, 72, 72)
    square[:, :, 31:41, 20:52] = torch.from_numpy(rng.random((20, 1, 10, 32), dtype=np.float32))
    maps = random_affine_maps(20, rng)
    maps[:, :, 2] = 0
    turned = augment_affine(square, maps)
    for middle in (slice(16, 56), slice(20, 52)):
        strip = augment_affine(square[:, :, middle], maps)
        torch.testing.assert_close(strip, turned[:, :, middle], atol=1e-4, rtol=0)
        upright = augment_affine(square.mT[..., middle], maps)
        torch.testing.assert_close(upright, augment_affine(square.mT, maps)[..., middle], atol=1e-4, rtol=0)


def test_texture_of_strips_is_as_strong_as_that_of_squares():
    for shape in ((8, 98), (98, 8)):
        images = torch.full((3000, 1, *shape), 0.5)
        assert 0.4 < float(_relative_texture(augment_texture(images, np.random.default_rng(0))).max()) < 0.65


def test_crops_are_parts_of_the_image_and_half_of_them_mirrored():
    rows, columns = np.mgrid[:32, :32] * 8
    image = np.stack([rows, columns, np.full((32, 32), 100)], axis=2).astype(np.uint8)
    crops = crop_photographs(np.repeat(image[None], 400, axis=0), np.random.default_rng(0)).astype(float)
    inside = crops[:, 1:-1, 1:-1]
    np.testing.assert_array_equal(inside[..., 2], 100)
    mirrored = inside[:, 0, 0, 1] > inside[:, 0, -1, 1]
    assert 0.42 < mirrored.mean() < 0.58
    assert np.all(inside[:, 0, 0, 0] < inside[:, -1, 0, 0])
    high, wide = (abs(inside[:, -1, -1, axis] - inside[:, 0, 0, axis]) / 29 / 8 for axis in (0, 1))
    assert 0.48 < (high * wide).min() < 0.6 < 0.9 < (high * wide).max() < 1.02
    assert inside[..., :2].max() <= 248
