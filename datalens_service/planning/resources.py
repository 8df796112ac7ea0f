"""Time and memory that a job will take, by public facts: measured where the table has such jobs, else a guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, TypeGuard

from datalens_service.data.dataset import Schema
from datalens_service.methods import LabelledPool, Mixture, Moments, PooledMoments, Scattering
from datalens_service.methods.base import Method
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
_HIDDEN_OF_DENSE, _HIDDEN_OF_CONV = 16, 256
_MAPS_OF_CONV, _TAPS = 32, 25
_BYTES_OF_A_WEIGHT: Final = 12
"""With its optimiser; both once more in a checkpoint, if they lie in memory: `python -m benchmarks.memory`."""
_LARGEST_ENSEMBLE: Final = 8 * _GIB
"""A larger one lies on a disk."""
_SECONDS_OF_CONV: Final = 3.5e-10
"""Of a weight and an image that a teacher learns from; of an image that it votes on about as much. Read off
`python -m benchmarks.authors`, whose teachers lie in memory."""
_SLOWER_ON_A_DISK: Final = 6
"""`python -m benchmarks.engine` with 4,000 conv teachers."""
_CALIBRATION_OF_CONV: Final = 0.0018
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


def has_conv(method: Method) -> TypeGuard[TeacherSettings]:
    """Whether the authors' networks vote."""
    return isinstance(method, TeacherSettings) and method.teacher.name == "conv"


def expect_seconds(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured], calibration: float | None) -> float:
    """Of training on one core: as the nearest rows of the method, by units and pixels; without `calibration` as fast as
    theirs. The authors' teachers are no row: their work is counted."""
    if has_conv(spec.method):
        slower = calibration / _CALIBRATION_OF_CONV if calibration else 1.0
        return max(_FASTEST_SECONDS, slower * _expect_conv_seconds(spec.method, schema, spec.limit_units(schema)))
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


def expect_disk(method: Method, schema: Schema) -> int:
    """Bytes of a job's file of teachers that do not fit into memory."""
    size = _BYTES_OF_A_WEIGHT * _count_weights(method, schema)
    return size if size > _LARGEST_ENSEMBLE else 0


def _expect_teachers(method: Method, schema: Schema) -> int:
    """Bytes of all networks that vote."""
    return 0 if expect_disk(method, schema) else 2 * _BYTES_OF_A_WEIGHT * _count_weights(method, schema)


def _count_weights(method: Method, schema: Schema) -> int:
    """Of all teachers that are networks."""
    if not isinstance(method, TeacherSettings):
        return 0
    classes = schema.num_classes
    maps, quarters = _MAPS_OF_CONV + classes, math.ceil(schema.height / 4) * math.ceil(schema.width / 4)
    each = {
        "dense": _HIDDEN_OF_DENSE * (schema.dimensions + classes),
        "conv": maps * (_HIDDEN_OF_CONV * quarters + _TAPS * (schema.channels + 2 * classes)),
    }
    return method.num_teachers * each.get(method.teacher.name, 0)


def _expect_conv_seconds(method: TeacherSettings, schema: Schema, units: int) -> float:
    """Training before each vote, and votes."""
    votes = method.plan(schema, units).steps
    teacher = method.teacher
    lessons = teacher.steps_before_vote(first=True) + (votes - 1) * teacher.steps_before_vote(first=False)
    images = lessons * (teacher.batch + method.images_per_step) + votes * method.images_per_step
    slower = _SLOWER_ON_A_DISK if expect_disk(method, schema) else 1
    return slower * _SECONDS_OF_CONV * images * _count_weights(method, schema)


def _expect_fit(method: RegisteredMethod, schema: Schema) -> int:
    """Bytes of what wavelets are fitted to: released samples, and as many images of a pool."""
    if isinstance(method, LabelledPool):
        return 2 * _expect_fit(method.classifier, schema)
    if not isinstance(method, Scattering) or method.warm_start is None:
        return 0
    return _BYTES_OF_A_FITTED_PIXEL * method.samples * schema.dimensions
