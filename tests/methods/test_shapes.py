"""The shapes method: samples of strokes have edges, and a count decides what images show."""

from dataclasses import replace

import numpy as np

from datalens_service.data.dataset import Dataset
from datalens_service.methods import Moments, Shapes
from datalens_service.privacy.accounting import limit_units
from datalens_service.privacy.budget import MemoryAccount

from .builders import dataset, train

SIDE, COUNT = 14, 600
UNITS = limit_units(20.0, 1e-4)


def bars(records_per_unit: int = 1) -> Dataset:
    """Two classes: an upright and a lying bar, somewhere in the image."""
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=COUNT)
    images = np.zeros((COUNT, SIDE, SIDE, 1), dtype=np.uint8)
    for row, label in enumerate(labels):
        place, length = rng.integers(3, 9), rng.integers(7, 10)
        if label:
            images[row, place : place + 3, 2 : 2 + length] = 255
        else:
            images[row, 2 : 2 + length, place : place + 3] = 255
    return dataset(images, labels, ("upright", "lying"), records_per_unit)


def share_of_black(images: np.ndarray) -> float:
    """Of all pixels; six of seven in records."""
    return float((images == 0).mean())


def test_samples_keep_their_class_and_have_edges():
    images, labels = train(Shapes(), bars(), UNITS).result().sample(200)
    ink = images[..., 0].astype(float)
    upright = ink.max(axis=2).sum(axis=1) > ink.max(axis=1).sum(axis=1)
    assert (upright == (labels == 0)).mean() > 0.9
    plain = train(Moments(subspace_dimensions=20), bars(), UNITS).result().sample(200)[0]
    assert share_of_black(images) > 0.7
    assert share_of_black(plain) < 0.6


def shaded(data: Dataset) -> Dataset:
    """The same with bars of many greys."""
    shades = np.linspace(0.3, 0.7, SIDE)[None, :, None, None]
    images = (data.train.images * shades).astype(np.uint8)
    return replace(data, train=replace(data.train, images=images))


def test_a_noisy_count_decides_between_drawings_and_objects():
    account = MemoryAccount(UNITS)
    assert train(Shapes(), bars(), UNITS, account).result().settings["content"] == "drawings"
    assert account.charges[0][2] <= 0.01 * UNITS
    assert train(Shapes(), shaded(bars()), UNITS).result().settings["content"] == "objects"


def test_the_count_counts_what_was_released_and_not_records():
    """Resumed with the count of other records, the run follows the count."""
    account = MemoryAccount(UNITS)
    train(Shapes(), shaded(bars()), UNITS, account)
    assert train(Shapes(), bars(), UNITS, account).result().settings["content"] == "objects"


def test_a_measured_content_fits_as_well_as_a_named_one():
    """Zeros behind the vectors of drawings add no number to the model."""
    measured = train(Shapes(), bars(), UNITS).result()
    stated = train(Shapes(content="drawings"), bars(), UNITS).result()
    shapes = {name: value.shape for name, value in stated.tensors.items()}
    assert {name: value.shape for name, value in measured.tensors.items()} == shapes
    np.testing.assert_allclose(measured.tensors["means"], stated.tensors["means"], atol=6)


def test_where_all_samples_are_accepted_none_is_too_blurred():
    generator = train(Shapes(accepted=1.0), bars(), UNITS).result()
    assert np.isinf(generator.tensors["tolerances"]).all()
    assert generator.sample(20)[0].any()
