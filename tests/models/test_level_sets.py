"""Images become signed distances and come back; each is a function of its own image, to the last bit."""

import numpy as np
import pytest

from datalens_service.models.generators.level_sets.level_sets import LevelSets
from datalens_service.models.generators.level_sets.outlines import (
    apply_poses,
    measure_pose,
    normalize_pose,
    pose_coordinates,
    poses_from,
    signed_distances,
)

from .builders import schema_of


def rings(count: int = 12, channels: int = 1, height: int = 28, width: int = 28) -> np.ndarray:
    """Rings of any size and place, brightness falling towards the right."""
    rng = np.random.default_rng(0)
    down, right = np.indices((height, width)) / np.array([height, width])[:, None, None]
    images = np.zeros((count, height, width, channels))
    for row in range(count):
        y, x, size = rng.uniform([0.4, 0.4, 0.2], [0.6, 0.6, 0.3])
        distance = np.abs(np.hypot(down - y, right - x) - size)
        images[row] = ((0.07 - distance) * height * 0.8 + 0.5).clip(0, 1)[..., None] * 255
    return np.rint(images).astype(np.uint8)


@pytest.mark.parametrize("content", ["drawings", "objects"])
@pytest.mark.parametrize(
    ("channels", "height", "width"), [(1, 28, 28), (3, 32, 32), (1, 24, 30), (1, 16, 48), (3, 33, 17)]
)
def test_what_is_decoded_looks_like_what_was_encoded(content, channels, height, width):
    codec, images = LevelSets(schema_of(channels, height, width), content), rings(4, channels, height, width)
    vectors = codec.encode(images)
    assert vectors.shape == (4, codec.dimensions)
    decoded = codec.decode(vectors).reshape(4, channels, height, width).transpose(0, 2, 3, 1)
    assert np.abs(decoded - images / 255).mean() < 0.06


@pytest.mark.parametrize("content", ["drawings", "objects"])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_vector_does_not_depend_on_other_images(content, channels):
    codec, images = LevelSets(schema_of(channels, 28, 28), content), rings(channels=channels)
    together = codec.encode(images)
    np.testing.assert_array_equal(codec.encode_fields(images), together[:, : codec.field_numbers])
    np.testing.assert_array_equal(codec.encode(images[5:6])[0], together[5])
    np.testing.assert_array_equal(codec.encode(images[::-1])[::-1], together)
    np.testing.assert_array_equal(codec.encode(images[3:])[4:], together[7:])


@pytest.mark.parametrize("content", ["drawings", "objects"])
@pytest.mark.parametrize("value", [0, 255])
def test_images_without_an_outline_are_finite(content, value):
    codec = LevelSets(schema_of(1, 28, 28), content)
    vectors = codec.encode(np.full((1, 28, 28, 1), value, dtype=np.uint8))
    assert np.isfinite(vectors).all()
    decoded = codec.decode(vectors)
    assert np.isfinite(decoded).all()
    assert abs(float(decoded.mean()) - value / 255) < 0.02


def test_a_moved_drawing_has_the_same_shape_and_another_pose():
    image = rings(1)[0, ..., 0]
    moved = np.roll(image, (2, -1), axis=(0, 1))
    first, second = measure_pose(image), measure_pose(moved)
    np.testing.assert_allclose((second - first) * 28, [-1, 2, 0, 0, 0], atol=1e-9)
    fields = signed_distances(np.stack([image, moved]), 0.5).clip(-2, 2)
    common = [normalize_pose(field, pose) for field, pose in zip(fields, (first, second), strict=True)]
    np.testing.assert_allclose(common[0][4:-4, 4:-4], common[1][4:-4, 4:-4], atol=1e-6)


def test_applying_a_pose_undoes_normalizing_it():
    image = rings(1)[0, ..., 0]
    pose, field = measure_pose(image), signed_distances(image[None], 0.5)[0]
    back = apply_poses(normalize_pose(field, pose)[None, None], pose[None])[0, 0]
    assert np.abs(back - field)[6:-6, 6:-6].mean() < 0.1
    np.testing.assert_allclose(poses_from(pose_coordinates(pose)), pose)


@pytest.mark.parametrize(("height", "width"), [(28, 28), (24, 72), (72, 24), (33, 17)])
def test_a_leaning_drawing_stands_upright_in_the_common_pose(height, width):
    down, right = np.indices((height, width)) - (np.array([height, width]) - 1)[:, None, None] / 2
    stroke = ((2 - np.abs(right - 0.4 * down)).clip(0, 1) * (0.3 * height - np.abs(down)).clip(0, 1) * 255).round()
    pose = measure_pose(stroke.astype(np.uint8))
    assert pose[2] == pytest.approx(0.4, abs=0.02)
    upright = normalize_pose(stroke, pose)
    assert measure_pose(upright.round().astype(np.uint8))[2] == pytest.approx(0, abs=0.03)
    returned = apply_poses(upright[None, None], pose[None])[0, 0]
    assert measure_pose(returned.round().astype(np.uint8))[2] == pytest.approx(0.4, abs=0.04)


def test_a_pose_without_ink_is_the_common_one():
    np.testing.assert_array_equal(measure_pose(np.zeros((5, 7), dtype=np.uint8)), np.zeros(5))


@pytest.mark.parametrize("content", ["drawings", "objects"])
def test_a_record_is_decoded_by_itself_and_as_samples_are(content):
    codec, images = LevelSets(schema_of(1, 28, 28), content), rings()
    vectors = codec.encode(images)
    together = codec.decode_records(vectors)
    as_samples = np.rint(codec.decode(vectors) * 255).reshape(-1, 1, 28, 28).transpose(0, 2, 3, 1)
    assert np.abs(together - as_samples).max() <= 1
    for row in (0, 5, 11):
        np.testing.assert_array_equal(codec.decode_records(vectors[row : row + 1])[0], together[row])
