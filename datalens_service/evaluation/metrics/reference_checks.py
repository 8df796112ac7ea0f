"""Self-checks of an extractor: spoiled real images must be farther from the reference than other real images.

An extractor that was trained on few images may not tell noise from photographs; its figures then mean nothing.
Spoiled images and distances of a private reference are as private as the reference.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Images
from datalens_service.privacy.randomness import TrainingRandomness

FARTHER: Final = 1.5
"""Least ratio of the FID of a spoiled set to that of other real images."""

_BLUR_PER_SIDE: Final = 0.08
_BLOCK: Final = 256
"""Images that are spoiled at once."""


def spoil(images: Images) -> Iterator[tuple[str, Images]]:
    """Yield versions of real images that nobody would take for them, one after the other, with their names."""
    for name, spoil in _SPOILERS.items():
        # A public seed: nothing that protects anything is drawn here.
        rng = TrainingRandomness(0).numpy(f"evaluation.check_{name}")
        yield name, np.concatenate([spoil(block, rng) for block in np.array_split(images, -(-len(images) // _BLOCK))])


def why_unknown(real: float, distances: Mapping[str, float]) -> str | None:
    """Explain in one sentence if a spoiled set is not far enough from the reference; None if all are.

    The sentence names no number and no set: it may reveal of the reference only that the check failed.

    Args:
        real: FID of other real images.
        distances: FID of each spoiled set.
    """
    if all(distance > FARTHER * max(real, 0.0) for distance in distances.values()):
        return None
    return (
        "Fidelity is unknown: the extractor cannot tell spoiled images (blurred, noised or scrambled) "
        "from real ones on this reference."
    )


def _blurred(images: Images, _rng: np.random.Generator) -> Images:
    side = min(images.shape[1:3])
    from scipy.ndimage import gaussian_filter

    blurred = gaussian_filter(images.astype(np.float32), (0, _BLUR_PER_SIDE * side, _BLUR_PER_SIDE * side, 0))
    return _as_pixels(blurred)


def _noised(images: Images, rng: np.random.Generator) -> Images:
    noise = rng.integers(0, 256, images.shape)
    return _as_pixels((images + noise) / 2)


def _coloured_noise(images: Images, rng: np.random.Generator) -> Images:
    """Combine the amplitudes of each image's spectrum with random phases: its texture without any object."""
    noise = rng.normal(size=(*images.shape[:3], 1))
    phases = np.exp(1j * np.angle(np.fft.rfft2(noise, axes=(1, 2))))
    means = images.mean(axis=(1, 2), keepdims=True)
    spectra = np.abs(np.fft.rfft2(images - means, axes=(1, 2))) * phases
    return _as_pixels(means + np.fft.irfft2(spectra, s=images.shape[1:3], axes=(1, 2)))


def _shuffled_pixels(images: Images, rng: np.random.Generator) -> Images:
    """Reorder all pixels of an image, in an order of its own."""
    count, height, width, channels = images.shape
    order = rng.random((count, height * width, 1)).argsort(axis=1)
    return np.take_along_axis(images.reshape(count, -1, channels), order, axis=1).reshape(images.shape)


def _as_pixels(values: NDArray[np.float32] | NDArray[np.float64]) -> Images:
    pixels: Images = np.rint(values).clip(0, 255).astype(np.uint8)
    return pixels


_SPOILERS: Final[dict[str, Callable[[Images, np.random.Generator], Images]]] = {
    "blurred": _blurred,
    "noised": _noised,
    "coloured noise": _coloured_noise,
    "shuffled pixels": _shuffled_pixels,
}
