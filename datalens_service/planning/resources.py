"""Time and memory that a job will take, by public facts: measured where the table has such jobs, else a guess."""

import math
from collections.abc import Sequence
from typing import Final, TypeGuard

from datalens_service.data.dataset import Schema
from datalens_service.methods.base import Method
from datalens_service.methods.registered import RegisteredMethod
from datalens_service.methods.voting.voting_method import TeacherSettings
from datalens_service.planning.measured import Measured
from datalens_service.spec import TrainingSpec

_FASTEST_SECONDS: Final = 1.0
_SECONDS_OF_OTHERS: Final = 600.0
"""Seconds for 60,000 images of 28×28 pixels by a method without rows: hardly a row of docs/utility.md took longer."""
_UNITS_OF_OTHERS: Final = 60_000
_DIMENSIONS_OF_OTHERS: Final = 28 * 28

_FEWER: Final = 0.75
"""Power with which time falls where a job has fewer units than were measured: part of the work is always the same."""

_PROGRAM: Final = 0.9 * 2**30
_SECONDS_OF_CONV: Final = 3.5e-10
"""Seconds for a weight and an image that a teacher learns from; an image that it votes on takes about as much. Read off
`python -m benchmarks.authors`, whose teachers lie in memory.
"""
_SLOWER_ON_A_DISK: Final = 6
"""Measured by `python -m benchmarks.engine` with 4,000 conv teachers."""
_CALIBRATION_OF_CONV: Final = 0.0018


def has_conv(method: Method) -> TypeGuard[TeacherSettings]:
    """Tell whether the authors' networks vote."""
    return isinstance(method, TeacherSettings) and method.teacher.name == "conv"


def expect_seconds(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured], calibration: float | None) -> float:
    """Estimate seconds of training on one core, from the nearest rows of the method by units and pixels.

    The authors' teachers have no row: their work is counted.

    Args:
        calibration: Speed of the machine; None takes that of the rows.
    """
    if has_conv(spec.method):
        slower = calibration / _CALIBRATION_OF_CONV if calibration else 1.0
        return max(_FASTEST_SECONDS, slower * _expect_conv_seconds(spec.method, schema, spec.limit_units(schema)))
    same = [row for row in rows if row.method == spec.method.facts.measured_as]
    if not same:
        pixels = schema.dimensions / _DIMENSIONS_OF_OTHERS
        return max(_FASTEST_SECONDS, _SECONDS_OF_OTHERS * schema.num_units / _UNITS_OF_OTHERS * pixels)
    near = _find_nearest(same, schema)
    pixels = schema.dimensions / near[0].dimensions
    units = min({row.units for row in near}, key=lambda known: abs(math.log(known / schema.num_units)))
    alike = [row for row in near if row.units == units]
    epsilon = min({row.epsilon for row in alike}, key=lambda known: abs(math.log(known / spec.epsilon)))
    longest = max(row.seconds_on(calibration) for row in alike if row.epsilon == epsilon)
    more = schema.num_units / units
    return max(_FASTEST_SECONDS, longest * (more if more > 1 else more**_FEWER) * max(1.0, pixels))


def _find_nearest(rows: Sequence[Measured], schema: Schema) -> list[Measured]:
    """Return the rows of images in as many colours, if there are any, of the nearest size."""
    coloured = [row for row in rows if (row.channels > 1) == (schema.channels > 1)] or list(rows)
    distance = {row.dimensions: abs(math.log(row.dimensions / schema.dimensions)) for row in coloured}
    nearest = min(distance, key=lambda known: distance[known])
    return [row for row in coloured if row.dimensions == nearest]


def expect_memory(method: RegisteredMethod, schema: Schema) -> int:
    """Estimate the bytes of a job's process at its peak, on a processor."""
    return round(_PROGRAM + method.working_bytes(schema))


def expect_disk(method: Method, schema: Schema) -> int:
    """Return the bytes of a job's file of teachers that do not fit into memory."""
    return method.disk_bytes(schema) if isinstance(method, TeacherSettings) else 0


def _expect_conv_seconds(method: TeacherSettings, schema: Schema, ledger_units: int) -> float:
    """Estimate training before each vote, and votes."""
    votes = method.plan(schema, ledger_units).steps
    teacher = method.teacher
    lessons = teacher.steps_before_vote(first=True) + (votes - 1) * teacher.steps_before_vote(first=False)
    images = lessons * (teacher.batch + method.images_per_step) + votes * method.images_per_step
    slower = _SLOWER_ON_A_DISK if method.disk_bytes(schema) else 1
    return slower * _SECONDS_OF_CONV * images * method.count_weights(schema)
