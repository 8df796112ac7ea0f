"""Which images are drawings: bright strokes on a dark ground, each judged alone."""

import numpy as np
import pytest

from datalens_service.methods.sums.content_count import are_drawings


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
