"""Time and memory that a job will take, by public facts: measured where the table has such jobs, else a guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from datalens_service.data.dataset import Schema
from datalens_service.methods import LabelledPool, Mixture, Moments, PooledMoments, Scattering
from datalens_service.methods.registered import RegisteredMethod
from datalens_service.methods.voting.voting_method import TeacherSettings
from datalens_service.planning.curves import like_measured, nearest_shape
from datalens_service.planning.reached import Measured
from datalens_service.spec import TrainingSpec

_FASTEST_SECONDS: Final = 1.0
_SECONDS_OF_OTHERS: Final = 600.0
"""Of 60,000 images of 28×28 pixels by a method that the table has not: hardly a row of docs/utility.md took longer."""
_UNITS_OF_OTHERS: Final = 60_000
_DIMENSIONS_OF_OTHERS: Final = 28 * 28

_FEWER: Final = 0.75
"""Power with which time falls where a job has fewer units than were measured: part of the work is always the same."""

_GIB: Final = 2**30
_PROGRAM: Final = 0.9 * _GIB
_BYTES_OF_A_PIXEL: Final = 27
"""Of each record and channel: 60,000 images of MNIST are measured in 2.1 GiB."""
_BYTES_OF_A_SUMMED_PIXEL: Final = 11
_BYTES_OF_A_PRODUCT: Final = 48
"""Of two coordinates, whose sum is noised, made whole and taken apart: `python -m benchmarks.memory`."""
_BYTES_OF_A_DRAWN_NUMBER: Final = 20_000
"""Of each number of an image, by the thousands that are drawn and measured at once: `python -m benchmarks.owners`."""
_BYTES_OF_A_FREQUENCY, _MOST_FREQUENCIES = 24, 1024
"""Of each record, while it is summed; images whose numbers are fewer have no more."""
_NETWORKS: Final = {"datalens": (0.2, 8e4), "pate_gan": (0.2, 8e4), "dp_gan": (0.2, 8e4), "dp_sgd": (0.2, 8e4)}
_WEIGHTS_OF_A_TEACHER: Final = {"dense": 16, "conv": 700}
"""For each pixel, and for each channel of dense ones; others have none."""
_BYTES_OF_A_WEIGHT: Final = 24
"""With its optimiser, and both once more in a checkpoint: `python -m benchmarks.memory`."""
_LARGEST_ENSEMBLE: Final = 16 * _GIB
"""In bytes of these; a larger one lies on a disk."""
_BYTES_OF_A_FITTED_PIXEL: Final = 72
"""Of each image that wavelets are fitted to: `python -m benchmarks.memory`."""
_DESCENT: Final = (0.4, 1.7e5)
"""GiB, and bytes per pixel and channel, beside the program: read off `python -m benchmarks.images`."""
_FAMILIES: Final = {
    **_NETWORKS,
    **dict.fromkeys(
        ("guided", "labelled_moments", "rejection", "diffusion", "rejection_or_diffusion", "shapes"), _DESCENT
    ),
}


def expect_seconds(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured], calibration: float | None) -> float:
    """Of training on one core: as the nearest rows of the method, by units and pixels; without `calibration` as fast as
    theirs."""
    same = [row for row in rows if row.method == like_measured(spec.method.name)]
    if not same:
        pixels = schema.dimensions / _DIMENSIONS_OF_OTHERS
        return max(_FASTEST_SECONDS, _SECONDS_OF_OTHERS * schema.num_units / _UNITS_OF_OTHERS * pixels)
    near = nearest_shape(same, schema)
    pixels = schema.dimensions / (near[0].side ** 2 * near[0].channels)
    units = min({row.units for row in near}, key=lambda known: abs(math.log(known / schema.num_units)))
    alike = [row for row in near if row.units == units]
    epsilon = min({row.epsilon for row in alike}, key=lambda known: abs(math.log(known / spec.epsilon)))
    longest = max(row.seconds_on(calibration) for row in alike if row.epsilon == epsilon)
    more = schema.num_units / units
    return max(_FASTEST_SECONDS, longest * (more if more > 1 else more**_FEWER) * max(1.0, pixels))


def expect_memory(method: RegisteredMethod, schema: Schema) -> int:
    """Bytes of a job's process at its peak, on a processor."""
    pixels = schema.num_units * schema.dimensions
    if isinstance(method, Moments | Mixture):
        summed = method.summed_dimensions(schema)
        groups = schema.num_classes * (method.components if isinstance(method, Mixture) else 1)
        products = max(summed**2, groups * min(method.subspace_dimensions, summed) ** 2)
        return round(_PROGRAM + _BYTES_OF_A_PRODUCT * products + _BYTES_OF_A_SUMMED_PIXEL * pixels)
    if isinstance(method, PooledMoments):
        frequencies = method.frequencies or _MOST_FREQUENCIES
        summed = _BYTES_OF_A_FREQUENCY * schema.num_units * min(frequencies, schema.dimensions)
        return round(_PROGRAM + 2 * pixels + max(summed, _BYTES_OF_A_DRAWN_NUMBER * schema.dimensions))
    gib, each = _FAMILIES.get(method.name, (0.0, 0.0))
    networks = gib * _GIB + each * schema.dimensions + _expect_teachers(method, schema)
    return round(_PROGRAM + max(networks, _expect_fit(method, schema), _BYTES_OF_A_PIXEL * pixels))


def _expect_teachers(method: RegisteredMethod, schema: Schema) -> int:
    """Bytes of all networks that vote."""
    if not isinstance(method, TeacherSettings):
        return 0
    kind = method.teacher.name
    numbers = schema.dimensions if kind == "dense" else schema.height * schema.width
    weights = method.num_teachers * _WEIGHTS_OF_A_TEACHER.get(kind, 0) * numbers
    return weights * _BYTES_OF_A_WEIGHT if weights * _BYTES_OF_A_WEIGHT <= _LARGEST_ENSEMBLE else 0


def _expect_fit(method: RegisteredMethod, schema: Schema) -> int:
    """Bytes of what wavelets are fitted to: released samples, and as many images of a pool."""
    if isinstance(method, LabelledPool):
        return 2 * _expect_fit(method.classifier, schema)
    if not isinstance(method, Scattering) or method.warm_start is None:
        return 0
    return _BYTES_OF_A_FITTED_PIXEL * method.samples * schema.dimensions
