"""Of how many pieces an image's ink is, and how many holes it has: what breaks first when shapes are sampled.

Each answer is a function of its own image.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import label

from datalens_service.data.dataset import Images

TOPOLOGY_NUMBERS: Final = 6
_MOST_PIECES, _MOST_HOLES = 3, 2
# Ink touches at corners, and so ground does not.
_TOUCHING: Final = np.ones((3, 3))


def topology(images: Images, level: float) -> NDArray[np.float32]:
    """(n, 6) a 1 for one, two or more pieces and a 1 for no, one or more holes, of images (n, height, width, channels).

    Args:
        images: Bytes.
        level: Brightness, of 1, from which a pixel is ink.
    """
    numbers = np.zeros((len(images), TOPOLOGY_NUMBERS), dtype=np.float32)
    for row, image in enumerate(images):
        pieces, holes = _count(image.max(axis=2) > level * 255)
        numbers[row, min(max(pieces, 1), _MOST_PIECES) - 1] = 1
        numbers[row, _MOST_PIECES + min(holes, _MOST_HOLES)] = 1
    return numbers


def _count(ink: NDArray[np.bool_]) -> tuple[int, int]:
    """Pieces of ink, and pieces of ground that do not reach the rim."""
    ground = np.pad(~ink, 1, constant_values=True)
    return int(label(ink, _TOUCHING)[1]), int(label(ground)[1]) - 1
