"""The mixture method: two kinds of images in a class stay two."""

import numpy as np

from datalens_service.data.dataset import Dataset
from datalens_service.methods import Mixture, Moments
from datalens_service.privacy.accounting import limit_units

from .builders import dataset, train

SIDE, COUNT = 6, 800
UNITS = limit_units(20.0, 1e-4)
METHOD = Mixture(components=2, iterations=3, subspace_dimensions=8, pooling=5.0)


def two_kinds() -> Dataset:
    """Two classes; an image of a class is bright on the left or on the right, never on both sides."""
    rng = np.random.default_rng(0)
    labels, right = rng.integers(2, size=(2, COUNT))
    images = rng.normal(30, 8, (COUNT, SIDE, SIDE, 1))
    for row in range(COUNT):
        columns = slice(3, 6) if right[row] else slice(0, 3)
        images[row, 3 * labels[row] : 3 * labels[row] + 3, columns] += 150
    return dataset(images, labels)


def both_sides(images: np.ndarray) -> float:
    """Share of images that are bright on both sides, which no private image is."""
    left, right = images[:, :, :3].max(axis=(1, 2, 3)), images[:, :, 3:].max(axis=(1, 2, 3))
    return float(((left > 100) & (right > 100)).mean())


def test_two_kinds_of_images_stay_two():
    mixture = train(METHOD, two_kinds(), UNITS).result().sample(400)[0]
    single = train(Moments(subspace_dimensions=8), two_kinds(), UNITS).result().sample(400)[0]
    assert both_sides(mixture) < 0.5 * both_sides(single)
