"""Signed distances are those that SciPy finds plane by plane; what tells drawings; pieces and holes; tilted samples."""

import math

import numpy as np
import pytest
from scipy.ndimage import distance_transform_edt, gaussian_filter, zoom

from datalens_service.methods.sums.content_count import are_drawings
from datalens_service.models.generators.level_sets.outlines import signed_distances
from datalens_service.models.generators.level_sets.rejection import topology
from datalens_service.models.generators.level_sets.tilting import find_level, fit_tilt, penalty


def distances_by_scipy(ink: np.ndarray, level: float) -> np.ndarray:
    """What `signed_distances` returns for one plane (height, width)."""
    farthest = 6 * math.sqrt(ink.size) / 28
    larger = zoom(ink.astype(np.float64), 3, order=1, mode="nearest", grid_mode=True) > level * 255
    if larger.all() or not larger.any():
        return np.full(ink.shape, farthest if larger.all() else -farthest)
    distances = distance_transform_edt(larger) - distance_transform_edt(~larger)
    distances = (distances - np.copysign(0.5, distances)) / 3
    means = distances.reshape(ink.shape[0], 3, ink.shape[1], 3).mean(axis=(1, 3))
    return np.asarray(means.clip(-farthest, farthest))


def blots(height: int, width: int, count: int = 5) -> np.ndarray:
    """Noise that is smoother in every plane than in the one before."""
    rng = np.random.default_rng(height * width)
    planes = [gaussian_filter(rng.uniform(-900, 900, (height, width)), number) for number in range(count)]
    return np.stack([(plane * (1 + number) + 128).clip(0, 255) for number, plane in enumerate(planes)]).astype(np.uint8)


@pytest.mark.parametrize(("height", "width"), [(28, 28), (5, 7), (1, 9), (64, 40), (180, 200)])
@pytest.mark.parametrize("level", [0.1, 0.5])
def test_distances_are_those_of_scipy(height, width, level):
    """Of 180 by 200 pixels, squares no longer fit into 16 bits."""
    planes = blots(height, width)
    distances = signed_distances(planes, level)
    for ink, plane in zip(planes, distances, strict=True):
        np.testing.assert_allclose(plane, distances_by_scipy(ink, level), atol=1e-12)


def test_a_plane_does_not_depend_on_others():
    planes = blots(28, 28, count=70)
    together = signed_distances(planes, 0.5)
    np.testing.assert_array_equal(signed_distances(planes[66:67], 0.5)[0], together[66])
    np.testing.assert_array_equal(signed_distances(planes[::-1], 0.5)[::-1], together)
    assert signed_distances(planes[:0], 0.5).shape == (0, 28, 28)


@pytest.mark.parametrize(("value", "sign"), [(0, -1), (255, 1)])
@pytest.mark.parametrize("side", [28, 200])
def test_without_an_outline_everything_is_far(value, sign, side):
    distances = signed_distances(np.full((2, side, side), value, dtype=np.uint8), 0.5)
    np.testing.assert_allclose(distances, sign * 6 * side / 28)


def test_distances_are_pixels_from_the_outline():
    ink = np.zeros((28, 28), dtype=np.uint8)
    ink[:, 14:] = 255
    distances = signed_distances(ink[None], 0.5)[0]
    np.testing.assert_allclose(distances[10, 12:17], [-1.5, -0.5, 0.5, 1.5, 2.5], atol=0.01)
    assert distances.min() == -6
    assert distances.max() == 6


def image(ground: int, ink: int, side: int = 28) -> np.ndarray:
    picture = np.full((side, side, 1), ground, dtype=np.uint8)
    picture[8:20, 12:15] = ink
    return picture


@pytest.mark.parametrize(
    ("ground", "ink", "expected"), [(0, 255, True), (0, 120, False), (255, 0, False), (120, 255, False), (0, 0, True)]
)
def test_bright_strokes_on_a_dark_ground_are_drawings(ground: int, ink: int, expected: bool) -> None:
    assert are_drawings(image(ground, ink)[None]).tolist() == [expected]


def test_an_answer_is_that_of_the_image_alone() -> None:
    rng = np.random.default_rng(0)
    images = np.where(rng.random((5000, 6, 6, 1)) < 0.3, rng.integers(0, 256, (5000, 6, 6, 1)), 0).astype(np.uint8)
    together = are_drawings(images)
    assert 0 < together.mean() < 1
    for row in (0, 17, 4095, 4096, 4999):
        assert together[row] == are_drawings(images[row : row + 1])[0]


def test_no_image_is_no_answer() -> None:
    assert are_drawings(np.zeros((0, 4, 4, 1), dtype=np.uint8)).shape == (0,)


def test_tilted_samples_have_the_mean_that_was_released() -> None:
    rng = np.random.default_rng(0)
    samples, mean = rng.standard_normal((20_000, 3)), np.array([0.3, 0.0, -0.2])
    weights = fit_tilt(samples, mean, 1e-6)
    shares = np.exp(samples @ weights)
    np.testing.assert_allclose(shares @ samples / shares.sum(), mean, atol=0.01)
    np.testing.assert_allclose(weights, mean, atol=0.05)


def test_a_penalty_holds_weights_back() -> None:
    samples, mean = np.random.default_rng(0).standard_normal((2000, 3)), np.array([0.5, 0.0, 0.0])
    lengths = [np.linalg.norm(fit_tilt(samples, mean, strength)) for strength in (0.01, 1.0, 100.0)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 0.01


def test_more_noise_is_more_penalty() -> None:
    assert penalty(0.0) == penalty(0.001) < penalty(0.01) < penalty(0.1)


@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
def test_a_level_accepts_its_share(share: float) -> None:
    scores = np.random.default_rng(0).standard_normal(5000) * 3
    accepted = np.exp(np.minimum(0, scores - find_level(scores, share))).mean()
    assert accepted == pytest.approx(share, abs=1e-3)


def drawn(*rows: str) -> np.ndarray:
    return np.array([[255 if pixel == "#" else 0 for pixel in row] for row in rows], dtype=np.uint8)[..., None]


NONE = drawn("....", "....", "....", "....")
BAR = drawn("#...", "#...", "#...", "#...")
RING = drawn("###.", "#.#.", "###.", "....")
DIAGONAL = drawn("#...", ".#..", "..#.", "...#")
TWO = drawn("#..#", "#..#", "....", "....")
FOUR = drawn("#..#", "....", "....", "#..#")
EIGHT = drawn("#####", "#.#.#", "#####", ".....", ".....")


@pytest.mark.parametrize(
    ("picture", "pieces", "holes"),
    [(NONE, 1, 0), (BAR, 1, 0), (RING, 1, 1), (DIAGONAL, 1, 0), (TWO, 2, 0), (FOUR, 3, 0), (EIGHT, 1, 2)],
)
def test_pieces_and_holes_are_counted(picture: np.ndarray, pieces: int, holes: int) -> None:
    (numbers,) = topology(picture[None], 0.35)
    expected = np.zeros(6)
    expected[[pieces - 1, 3 + holes]] = 1
    np.testing.assert_array_equal(numbers, expected)


def test_grey_is_ink_from_its_level() -> None:
    grey = (RING * 0.3).astype(np.uint8)[None]
    assert topology(grey, 0.35)[0, 3] == 1
    assert topology(grey, 0.07)[0, 4] == 1
