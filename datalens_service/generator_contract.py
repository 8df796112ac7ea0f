"""What a generator of another package owes, tried on classes that nobody has."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from datalens_service.data.dataset import Images, Schema
from datalens_service.method_contract import Finding, judge
from datalens_service.models.generators.installed import ImageGenerator

SHAPES: Final = ((28, 28, 1), (32, 32, 3))
"""Height, width and channels of the images that are asked for."""

_COUNT: Final = 6


def check_generator(make: Callable[[Schema], ImageGenerator]) -> Iterator[Finding]:
    """Try every point on images of several shapes."""
    for shape in SHAPES:
        schema = Schema(height=shape[0], width=shape[1], channels=shape[2], class_names=("a", "b"), num_units=100)
        title = "×".join(map(str, shape))
        try:
            yield from _check_shape(make(schema), (_COUNT, *shape), title)
        except Exception as error:  # noqa: BLE001 (whatever the plug-in does wrong is a finding)
            yield Finding(f"it makes images of {title}", f"{type(error).__name__}: {error}")


def _check_shape(generator: ImageGenerator, shape: tuple[int, ...], title: str) -> Iterator[Finding]:
    first = generator.random(_COUNT, 1, 0)
    before = np.array(first)
    yield from _check_images(first, generator.random(_COUNT, 1, 0), generator.random(_COUNT, 1, 1), shape, title)
    varied = [generator.variations(first, 1, seed) for seed in (0, 0, 1)]
    yield from _check_images(varied[0], varied[1], varied[2], shape, f"variations, {title}")
    yield judge(f"images stay as they are, {title}", np.array_equal(first, before), "it wrote into its images")


def _check_images(
    images: Images, again: Images, others: Images, shape: tuple[int, ...], title: str
) -> Iterator[Finding]:
    made = np.asarray(images)
    right = made.dtype == np.uint8 and made.shape == shape
    yield judge(f"uint8 images, {title}", right, f"got {made.dtype} of shape {made.shape}, not {shape}")
    yield judge(f"the same for the same seed, {title}", np.array_equal(made, again), "a second call differs")
    yield judge(f"others for another seed, {title}", not np.array_equal(made, others), "seeds change nothing")
