"""A finished job in miniature: blobs in the corners of small images, a fitted Gaussian, a report."""

import datetime
from typing import Any

import numpy as np
import pytest

from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.evaluation import Measure
from datalens_service.evaluation.evaluate import Evaluation
from datalens_service.evaluation.measures import Measurements
from datalens_service.mechanisms import OuterProductSum, PlannedRelease, TopAgg
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.accounting import limit_units
from datalens_service.report.build import MethodFacts, Report
from datalens_service.report.document import Product
from datalens_service.report.privacy_statement import Lifetime, PrivacyStatement, privacy_statement

CLASS_NAMES = ("left <top>", "right top", "bottom")
SIDE = 12


def split(count: int, seed: int, side: int = SIDE) -> Split:
    """Dark noise with one bright corner; which corner is the label."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(CLASS_NAMES), count)
    images = rng.integers(0, 60, (count, side, side, 1))
    half = side // 2
    for index, (rows, columns) in enumerate(((slice(half), slice(half)), (slice(half), slice(half, side)))):
        images[labels == index, rows, columns] += 150
    images[labels == 2, half:] += 150
    return Split(images.astype(np.uint8), labels)


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    schema = Schema(channels=1, height=SIDE, width=SIDE, class_names=CLASS_NAMES, num_units=600)
    return Dataset(schema, split(600, 1), split(200, 2), b"k" * 32)


@pytest.fixture(scope="session")
def generator(dataset: Dataset) -> Generator:
    """Class means and a little variation: what the moments method releases when the noise is small."""
    dimensions = dataset.schema.dimensions
    pixels = dataset.train.images.reshape(len(dataset.train.labels), -1) / 255
    means = np.stack([pixels[dataset.train.labels == label].mean(axis=0) for label in range(len(CLASS_NAMES))])
    factors = np.broadcast_to(np.eye(dimensions) * 0.07, (len(CLASS_NAMES), dimensions, dimensions))
    tensors = {"basis": np.eye(dimensions), "means": means, "factors": factors}
    return Generator("gaussian", dataset.schema, {}, {name: np.float32(value) for name, value in tensors.items()})


def votes(top_k: int = 200, noise_stddev: int = 5000, images: int = 15) -> TopAgg:
    """The authors' MNIST votes at ε = 1."""
    return TopAgg(
        noise_stddev=noise_stddev,
        num_teachers=4000,
        images=images,
        dimensions=784,
        top_k=top_k,
        clip=1e-5,
        stochastic=True,
        threshold=0.7,
    )


RELEASES = (
    PlannedRelease(mechanism=OuterProductSum(num_groups=1, dimensions=784, noise_stddev=2**24)),
    PlannedRelease(mechanism=votes(), count=140),
)


def statement(charged_units: int | None = None, delta: float = 1e-5) -> PrivacyStatement:
    made = sum(release.cost() for release in RELEASES)
    return privacy_statement(
        releases=RELEASES,
        charged_units=made if charged_units is None else charged_units,
        epsilon_limit=1.0,
        limit_units=limit_units(1.0, 1e-5),
        delta=delta,
        num_units=60_000,
        unit="patient",
        lifetime=Lifetime(limit=2.0, spent=1.4652, reserved=0.0, remaining=0.5, delta=1e-5),
    )


def report(*measures: Measure, **others: Any) -> Report:
    """A report with these figures.

    Args:
        others: Further members of its measurements.
    """
    evaluation = Evaluation.from_measurements(Measurements(measures=measures, **others))
    schema = Schema(channels=1, height=28, width=28, class_names=CLASS_NAMES, num_units=60_000)
    return Report(
        product=Product(name="DataLens Service", version="1.2.3", commit="0123456789abcdef"),
        date=datetime.date(2026, 11, 20),
        dataset_id="ds_random",
        public_schema=schema,
        method=MethodFacts(name="datalens", spec={"epsilon": 1.0, "seed": 0}, plan=RELEASES),
        privacy=statement(),
        measures=evaluation.measures,
        measured=evaluation.measured,
    )
