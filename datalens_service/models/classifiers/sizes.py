"""Numbers of weights of architectures, from the shape of the images alone: plans are priced without torch."""

import math
from collections.abc import Callable
from typing import Final

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.data.image_sizes import ImageSize
from datalens_service.models.encoders.scattering import SCATTERING_MAPS, ScatteringEncoder

MOST_FEATURES: Final = 2**15
"""Images of 3×64×64 have 62,208 features, whose basis no longer fits into memory."""


def _small_cnn(schema: Schema) -> int:
    sides = [_after(_after(_after(_after(side, 8, 2, 3), 2, 1), 4, 2), 2, 1) for side in (schema.height, schema.width)]
    convolutions = _convolution(schema.channels, 16, 8) + _convolution(16, 32, 4)
    return convolutions + _layer(32 * _area(sides), 32) + _layer(32, schema.num_classes)


def _lenet(schema: Schema) -> int:
    sides = [_after(_after(side // 2, 5, 1), 2, 2) for side in (schema.height, schema.width)]
    convolutions = _convolution(schema.channels, 6, 5) + _convolution(6, 16, 5)
    return convolutions + _layer(16 * _area(sides), 120) + _layer(120, 84) + _layer(84, schema.num_classes)


def _mlp(schema: Schema) -> int:
    return _layer(schema.dimensions, 128) + _layer(128, schema.num_classes)


def _linear(schema: Schema) -> int:
    return _layer(schema.dimensions, schema.num_classes)


_SIZES: Final[dict[str, Callable[[Schema], int]]] = {
    "small_cnn": _small_cnn,
    "lenet": _lenet,
    "lenet_relu": _lenet,
    "mlp": _mlp,
    "linear": _linear,
}


def num_weights(architecture: str, schema: Schema) -> int:
    """Return the number of trainable weights of a network for these images.

    Raises:
        InvalidSpec: The images are too small for it.
    """
    return _SIZES[architecture](schema)


def fits_scattering(schema: Schema) -> bool:
    """Tell whether a classifier on scattering features can be trained on these images."""
    return ScatteringEncoder().dimensions(schema) <= MOST_FEATURES


def largest_scattering_size(schema: Schema) -> ImageSize:
    """Return the largest size of about these proportions that `fits_scattering` takes."""
    cells = MOST_FEATURES // (SCATTERING_MAPS * schema.channels)
    width, height = schema.width, schema.height
    return ImageSize(4 * math.isqrt(cells * width // height), 4 * math.isqrt(cells * height // width))


def _after(side: int, window: int, stride: int, padding: int = 0) -> int:
    """Return the side of the maps behind a convolution or a pooling layer."""
    return (side + 2 * padding - window) // stride + 1


def _area(sides: list[int]) -> int:
    if min(sides) < 1:
        raise InvalidSpec("The images are too small for this architecture: choose mlp or linear.")
    return sides[0] * sides[1]


def _convolution(maps: int, filters: int, window: int) -> int:
    return filters * (maps * window**2 + 1)


def _layer(inputs: int, outputs: int) -> int:
    return outputs * (inputs + 1)
