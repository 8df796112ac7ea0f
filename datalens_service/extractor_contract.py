"""What a feature extractor of another package owes, tried on made-up images."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images
from datalens_service.method_contract import Finding, judge

Extract = Callable[[Images], NDArray[Any]]

SHAPES: Final = ((8, 8, 1), (28, 28, 1), (32, 32, 3))
"""Height, width and channels of the images that are tried."""

_COUNT: Final = 12
_TOLERANCE: Final = 1e-4


def check_extractor(extract: Extract) -> Iterator[Finding]:
    """Try every point on images of several shapes."""
    for shape in SHAPES:
        images = np.random.default_rng(0).integers(0, 256, (_COUNT, *shape), dtype=np.uint8)
        title = "×".join(map(str, shape))
        try:
            yield from _check_shape(extract, images, title)
        except Exception as error:  # noqa: BLE001 (whatever the plug-in does wrong is a finding)
            yield Finding(f"it takes images of {title}", f"{type(error).__name__}: {error}")


def _check_shape(extract: Extract, images: Images, title: str) -> Iterator[Finding]:
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
