"""Time and memory that a job will take, by public facts: measured where the table has such jobs, else a guess."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from datalens_service.data.dataset import Schema
from datalens_service.methods.registered import RegisteredMethod
from datalens_service.planning.curves import nearest_shape
from datalens_service.planning.reached import Measured
from datalens_service.spec import TrainingSpec

_FASTEST_SECONDS: Final = 1.0
_SECONDS_OF_OTHERS: Final = 600.0
"""Of 60,000 images of 28×28 pixels by a method that the table has not: hardly a row of docs/utility.md took longer."""
_UNITS_OF_OTHERS: Final = 60_000
_DIMENSIONS_OF_OTHERS: Final = 28 * 28

_FEWER: Final = 0.75
"""Power with which time falls where a job has fewer units than were measured: part of the work is always the same."""

_PROGRAM: Final = 0.9 * 2**30


def expect_seconds(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured], calibration: float | None) -> float:
    """Of training on one core: as the nearest rows of the method, by units and pixels; without `calibration` as fast as
    theirs."""
    same = [row for row in rows if row.method == spec.method.facts.measured_as]
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
    return round(_PROGRAM + method.working_bytes(schema))
