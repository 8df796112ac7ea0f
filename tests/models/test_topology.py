"""Pieces and holes of ink, each image by itself."""

import numpy as np
import pytest

from datalens_service.models.generators.outlines.rejection import topology


def image(*rows: str) -> np.ndarray:
    return np.array([[255 if pixel == "#" else 0 for pixel in row] for row in rows], dtype=np.uint8)[..., None]


NONE = image("....", "....", "....", "....")
BAR = image("#...", "#...", "#...", "#...")
RING = image("###.", "#.#.", "###.", "....")
DIAGONAL = image("#...", ".#..", "..#.", "...#")
TWO = image("#..#", "#..#", "....", "....")
FOUR = image("#..#", "....", "....", "#..#")
EIGHT = image("#####", "#.#.#", "#####", ".....", ".....")


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
