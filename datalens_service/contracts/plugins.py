"""The contract of a feature extractor, or a generator, of another package, tried on made-up images and classes."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.contracts.methods import Finding, judge
from datalens_service.data.dataset import Images, Schema
from datalens_service.models.generators.installed import ImageGenerator

Shape = tuple[int, int, int]
"""Height, width and channels of images that are tried or asked for."""

_EXTRACTED: Final[tuple[Shape, ...]] = ((8, 8, 1), (28, 28, 1), (32, 32, 3))
_GENERATED: Final[tuple[Shape, ...]] = ((28, 28, 1), (32, 32, 3))
_IMAGES: Final = 12
_MADE: Final = 6
_TOLERANCE: Final = 1e-4


def check_extractor(extract: Callable[[Images], NDArray[Any]]) -> Iterator[Finding]:
    """Try every point on images of several shapes."""

    def check(shape: Shape, title: str) -> Iterator[Finding]:
        images = np.random.default_rng(0).integers(0, 256, (_IMAGES, *shape), dtype=np.uint8)
        return _check_features(extract, images, title)

    return _try_shapes(_EXTRACTED, "takes", check)


def check_generator(make: Callable[[Schema], ImageGenerator]) -> Iterator[Finding]:
    """Try every point on images of several shapes."""

    def check(shape: Shape, title: str) -> Iterator[Finding]:
        schema = Schema(height=shape[0], width=shape[1], channels=shape[2], class_names=("a", "b"), num_units=100)
        return _check_images(make(schema), (_MADE, *shape), title)

    return _try_shapes(_GENERATED, "makes", check)


def _try_shapes(
    shapes: tuple[Shape, ...], verb: str, check: Callable[[Shape, str], Iterator[Finding]]
) -> Iterator[Finding]:
    for shape in shapes:
        title = "×".join(map(str, shape))
        try:
            yield from check(shape, title)
        except Exception as error:  # noqa: BLE001 (whatever the plug-in does wrong is a finding)
            yield Finding(f"it {verb} images of {title}", f"{type(error).__name__}: {error}")


def _check_features(extract: Callable[[Images], NDArray[Any]], images: Images, title: str) -> Iterator[Finding]:
    before = images.copy()
    features = np.asarray(extract(images))
    right = features.ndim == 2 and len(features) == len(images) and features.dtype.kind == "f"
    yield judge(f"features (n, dimensions) of {title}", right, f"got {features.dtype} of shape {features.shape}")
    if not right:
        return
    yield judge(f"features are finite, {title}", bool(np.isfinite(features).all()), "some are infinite or no number")
    yield judge(f"images stay as they are, {title}", np.array_equal(images, before), "it wrote into its images")
    yield judge(f"it repeats itself, {title}", _same(extract(before), features), "a second call differs")
    alone = np.concatenate([np.asarray(extract(before[at : at + 1])) for at in range(len(before))])
    yield judge(f"each image by itself, {title}", _same(alone, features), "features depend on the rest of the batch")
    differ = not _same(features[1:], features[:1].repeat(len(features) - 1, axis=0))
    yield judge(f"it tells images apart, {title}", differ, "all images have the same features")


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    scale = float(np.abs(other).max(initial=0.0)) or 1.0
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * scale))


def _check_images(generator: ImageGenerator, shape: tuple[int, ...], title: str) -> Iterator[Finding]:
    first = generator.random(_MADE, 1, 0)
    before = np.array(first)
    yield from _check_made(first, generator.random(_MADE, 1, 0), generator.random(_MADE, 1, 1), shape, title)
    varied = [generator.variations(first, 1, seed) for seed in (0, 0, 1)]
    yield from _check_made(varied[0], varied[1], varied[2], shape, f"variations, {title}")
    yield judge(f"images stay as they are, {title}", np.array_equal(first, before), "it wrote into its images")


def _check_made(images: Images, again: Images, others: Images, shape: tuple[int, ...], title: str) -> Iterator[Finding]:
    made = np.asarray(images)
    right = made.dtype == np.uint8 and made.shape == shape
    yield judge(f"uint8 images, {title}", right, f"got {made.dtype} of shape {made.shape}, not {shape}")
    yield judge(f"the same for the same seed, {title}", np.array_equal(made, again), "a second call differs")
    yield judge(f"others for another seed, {title}", not np.array_equal(made, others), "seeds change nothing")
