"""Whether an image is a drawing: bright strokes of one brightness on a dark ground.

Each answer is a function of its own image. Levels were chosen on MNIST, of which 97 in 100 training images are drawings
by them, and on Fashion-MNIST, of which 16 are.
"""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images

_DARK, _BRIGHT = 64, 192
_LEAST_GROUND: Final = 0.6
"""Of all pixels, dark ones."""
_LEAST_BRIGHT: Final = 0.5
"""Of the pixels that are not dark, bright ones: the others are edges of strokes, or shades of objects."""
_ROWS: Final = 4096


def are_drawings(images: Images) -> NDArray[np.bool_]:
    """(n,) whether images (n, height, width, channels) have a dark ground and few shades."""
    parts = [_of_batch(images[row : row + _ROWS]) for row in range(0, len(images), _ROWS)]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)


def _of_batch(images: Images) -> NDArray[Any]:
    brightness = images.max(axis=3)
    pixels = brightness.shape[1] * brightness.shape[2]
    ink, bright = (brightness >= _DARK).sum(axis=(1, 2)), (brightness >= _BRIGHT).sum(axis=(1, 2))
    # Whole numbers on both sides: no rounding decides.
    return np.asarray((ink <= (1 - _LEAST_GROUND) * pixels) & (bright >= _LEAST_BRIGHT * ink))
