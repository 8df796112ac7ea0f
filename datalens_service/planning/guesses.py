"""What a job may reach where nothing like it was measured: a wide range, from rows of the table with as much evidence.

Evidence is μ times the units of a class. Of each data set of the table, accuracy between guessing and certainty follows
it closely, so a job is guessed between the easy and the hard set, lower where images are harder than both.
`python -m benchmarks.panel --check` compares guesses with results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from datalens_service.data.dataset import Schema
from datalens_service.methods.appearance import count_evidence
from datalens_service.planning.reached import Measured
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.spec import TrainingSpec

_DELTA_OF_TABLE: Final = 1e-5
_CLASSES_OF_TABLE: Final = 10
_DIMENSIONS_OF_TABLE: Final = 28 * 28
_EASIER: Final = 0.15
_OF_THE_EASY: Final = {"like": 1.0, "large": 0.95, "colour": 0.75}
_OF_THE_HARD: Final = {"like": 0.6, "large": 0.4, "colour": 0.2}
"""Share of a set's gain over guessing that images reach: grey and small, grey and large, in colour."""
_HELPED: Final = 0.15
_LARGEST_LIKE: Final = 40
_AVERAGES_OF_THE_HARD: Final = 0.7
_BEST_AVERAGES: Final = 0.92
_NEAR: Final = 0.05
_MOST: Final = 0.97
_FASTEST_SECONDS: Final = 1.0
_SECONDS_OF_OTHERS: Final = 600.0
"""Of 60,000 images of 28×28 pixels by a method that the table has not: no row of docs/utility.md took longer."""
_UNITS_OF_OTHERS: Final = 60_000
_PRESETS: Final = {
    "scattering": "classifier",
    "dp_sgd": "classifier",
    "labelled_pool": "classifier",
    **dict.fromkeys(("shapes", "rejection", "guided", "diffusion", "rejection_or_diffusion"), "auto"),
    **dict.fromkeys(("moments", "mixture", "pooled_moments"), "fast"),
}


class Range(NamedTuple):
    """Percent."""

    low: float
    high: float


def count_planned_evidence(spec: TrainingSpec, schema: Schema) -> float:
    """μ of the budget times the units of a class."""
    return count_evidence(schema, mu_for_epsilon(spec.epsilon, spec.delta_at(schema)))


def guess_accuracy(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured]) -> Range:
    """Of a classifier that learned from the result; methods that the table has not may reach nothing."""
    name = spec.method.name
    low, high = _shares(rows, _PRESETS.get(name, "fast"), count_planned_evidence(spec, schema))
    helped = spec.public_data is not None or spec.method.public_encoder() is not None
    least = _OF_THE_HARD[_kind(schema)] * low if name in _PRESETS else 0.0
    return _percent(schema, least, (high + _EASIER) * _OF_THE_EASY[_kind(schema)] + helped * _HELPED)


def guess_averages(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured], *, measured: bool) -> Range:
    """Of noisy class averages, at the same budget.

    Args:
        measured: Whether jobs like this one are in the table.
    """
    low, high = _shares(rows, "fast", count_planned_evidence(spec, schema))
    if measured:
        return _percent(schema, _AVERAGES_OF_THE_HARD * low, min(high + _NEAR, _BEST_AVERAGES))
    least = _AVERAGES_OF_THE_HARD * _OF_THE_HARD[_kind(schema)] * low
    return _percent(schema, least, min((high + _EASIER) * _OF_THE_EASY[_kind(schema)], _BEST_AVERAGES))


def guess_seconds(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured], calibration: float | None) -> float:
    """Of training on one core: as the largest row of the method, by units and pixels."""
    pixels = schema.dimensions / _DIMENSIONS_OF_TABLE
    same = [row for row in rows if row.method == spec.method.name]
    if not same:
        return max(_FASTEST_SECONDS, _SECONDS_OF_OTHERS * schema.num_units / _UNITS_OF_OTHERS * pixels)
    units = min({row.units for row in same}, key=lambda known: abs(math.log(known / schema.num_units)))
    longest = max(row.seconds_on(calibration) for row in same if row.units == units)
    return max(_FASTEST_SECONDS, longest * schema.num_units / units * max(1.0, pixels))


def _shares(rows: Sequence[Measured], preset: str, evidence: float) -> tuple[float, float]:
    """Gain over guessing, of the hard and of the easy data set of the table, from 0 to 1."""
    found = []
    for dataset in sorted({row.dataset for row in rows if row.preset == preset}):
        known = [row for row in rows if (row.dataset, row.preset) == (dataset, preset)]
        points = sorted((_log_evidence(row), _gain(row)) for row in known)
        at, gains = (np.array(column) for column in zip((0.0, 0.0), *points, strict=True))
        found.append(float(np.interp(math.log10(max(evidence, 1.0)), at, gains)))
    return (min(found), max(found)) if found else (0.0, 1.0)


def _log_evidence(row: Measured) -> float:
    return math.log10(max(1.0, mu_for_epsilon(row.epsilon, _DELTA_OF_TABLE) * row.units / _CLASSES_OF_TABLE))


def _gain(row: Measured) -> float:
    guessing = 1 / _CLASSES_OF_TABLE
    return max(0.0, (row.mean / 100 - guessing) / (1 - guessing))


def _kind(schema: Schema) -> str:
    if schema.channels > 1:
        return "colour"
    return "like" if max(schema.height, schema.width) <= _LARGEST_LIKE else "large"


def _percent(schema: Schema, low: float, high: float) -> Range:
    guessing = 100 / schema.num_classes
    ends = (guessing + (100 - guessing) * min(_MOST, max(0.0, share)) for share in (low, high))
    return Range(*(round(end, 1) for end in ends))
