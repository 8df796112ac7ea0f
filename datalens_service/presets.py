"""Presets: settings of a method from public values only, the shape of the images, n and ε.

    auto       guided where there is evidence enough to train a classifier, else fast; minutes on two cores
    fast       moments, or a mixture where the budget pays for one; seconds on one core
    balanced   DataLens with small dense teachers, started from moments and refined by votes
    classifier a classifier instead of images: a linear layer on wavelet features where they fit, else a network
    paper      DataLens with the settings of its authors (docs/published-algorithm.md)

A preset is nothing but parameters: what it returns can be written out, and is, in the spec of the job.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from datalens_service.data.dataset import Schema
from datalens_service.errors import InvalidSpec
from datalens_service.mechanisms import TopAggParameters
from datalens_service.methods import AnyMethod, DataLens, DpSgd, Guided, Mixture, Moments, Scattering
from datalens_service.methods.datalens.teachers import ConvTeacher
from datalens_service.methods.scattering import MOST_FEATURES
from datalens_service.models.classifiers.sizes import num_features
from datalens_service.privacy.accounting import default_delta, mu_for_epsilon

RECORDS_PER_TEACHER: Final = 15
"""Size of a shard with the authors: 60,000 records for 4,000 teachers."""

_MOST_TEACHERS: Final = 4000
_LARGEST_STEP: Final = 1024
_MNIST_DIMENSIONS: Final = 784

# With classes of 6,000 records ten components are better than one at ε = 10 (μ = 2), on MNIST and on Fashion-MNIST.
# At ε = 1 (μ = 0.27) three help a little on the one and cost much on the other.
_RECORDS_PER_COMPONENT: Final = 1000
_FEWEST_COMPONENTS, _MOST_COMPONENTS = 4, 10

# n·μ from which a classifier learns more than samples tell: MNIST has 3,700 at ε = 0.2, where it does.
_EVIDENCE_FOR_A_LABELLER: Final = 3000


class _HeadTraining(NamedTuple):
    """How a classifier's last layer follows its gradients."""

    steps: int
    learning_rate: float
    averaging: float


# Where a mixture pays, noise no longer ends the descent: MNIST and Fashion-MNIST at ε = 10 gain from four times as
# many steps, at ε = 1 they do not.
_LONG: Final = _HeadTraining(steps=240, learning_rate=60.0, averaging=0.95)
# And samples of several widths teach more there than those of one.
_LEAST_SPREAD: Final = 1.25


class _Published(NamedTuple):
    """Settings of the authors for MNIST."""

    noise_stddev: int
    top_k: int
    threshold: float
    z_dim: int


_EPSILON_1: Final = _Published(noise_stddev=5000, top_k=200, threshold=0.7, z_dim=50)
_EPSILON_10: Final = _Published(noise_stddev=800, top_k=300, threshold=0.2, z_dim=50)


def preset(name: str, schema: Schema, epsilon: float) -> AnyMethod:
    """Parameters of a method for a data set.

    Args:
        name: Key of `PRESETS`.
        schema: Public schema of the data set.
        epsilon: Of the job.

    Raises:
        InvalidSpec: There is no such preset.
    """
    if name not in PRESETS:
        raise InvalidSpec(f"There is no preset {name!r}: choose {', '.join(PRESETS)}.")
    return PRESETS[name](schema, epsilon)


def teachers_for(schema: Schema, *, multiple_of: int = 1) -> int:
    """Teachers with shards of about 15 records: never more than the authors had.

    Args:
        schema: Its `num_units` is public.
        multiple_of: At least this many, and a multiple of it.
    """
    wanted = min(_MOST_TEACHERS, schema.num_units // RECORDS_PER_TEACHER)
    return max(1, wanted // multiple_of) * multiple_of


def components_for(schema: Schema, epsilon: float) -> int:
    """Gaussians per class that a budget pays for; 1 if a single one is better.

    The noise on a component's mean grows with 1/(μ · its records), so μ times its records decides.

    Args:
        schema: Its `num_units` is public, and counts as the number of records.
        epsilon: Of the job.
    """
    affordable = int(_evidence(schema, epsilon) / schema.num_classes / _RECORDS_PER_COMPONENT)
    return 1 if affordable < _FEWEST_COMPONENTS else min(_MOST_COMPONENTS, affordable)


def _evidence(schema: Schema, epsilon: float) -> float:
    """n·μ: the noise on an average over all records falls with it."""
    return schema.num_units * mu_for_epsilon(epsilon, default_delta(schema.num_units)) / schema.records_per_unit


def _fast(schema: Schema, epsilon: float) -> Moments | Mixture:
    components = components_for(schema, epsilon)
    return Mixture(components=components) if components > 1 else Moments()


def _auto(schema: Schema, epsilon: float) -> Guided | Moments | Mixture:
    if schema.num_classes == 1 or _evidence(schema, epsilon) < _EVIDENCE_FOR_A_LABELLER:
        return _fast(schema, epsilon)
    start = _fast(schema, epsilon)
    if not isinstance(start, Mixture):
        return Guided(warm_start=start)
    steps, learning_rate, averaging = _LONG
    return Guided(
        warm_start=start, steps=steps, learning_rate=learning_rate, averaging=averaging, least_spread=_LEAST_SPREAD
    )


def _balanced(schema: Schema, _epsilon: float) -> DataLens:
    # A class of its own for every teacher needs at least one record for each.
    apart = schema.num_units >= schema.num_classes
    return DataLens(
        shards="class_pure" if apart else "mixed",
        num_teachers=teachers_for(schema, multiple_of=schema.num_classes if apart else 1),
        images_per_step=schema.num_classes * max(1, min(2, _LARGEST_STEP // schema.num_classes)),
        vote_basis="dct",
        vote_dimensions=min(64, schema.dimensions),
        votes=TopAggParameters(top_k=min(16, schema.dimensions)),
        clip=1.0,
        threshold="none",
        warm_start=Moments(),
    )


def _paper(schema: Schema, epsilon: float) -> DataLens:
    published = _EPSILON_1 if epsilon <= 1 else _EPSILON_10
    share = math.ceil(published.top_k * schema.dimensions / _MNIST_DIMENSIONS)
    return DataLens(
        teacher=ConvTeacher(),
        num_teachers=teachers_for(schema),
        votes=TopAggParameters(top_k=min(published.top_k, share)),
        noise_stddev=published.noise_stddev,
        threshold=published.threshold,
        z_dim=published.z_dim,
    )


def _classifier(schema: Schema, _epsilon: float) -> Scattering | DpSgd:
    return Scattering() if num_features(schema) <= MOST_FEATURES else DpSgd()


PRESETS: Final[dict[str, Callable[[Schema, float], AnyMethod]]] = {
    "auto": _auto,
    "fast": _fast,
    "balanced": _balanced,
    "paper": _paper,
    "classifier": _classifier,
}
