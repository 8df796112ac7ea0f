"""Accuracies of methods, by evidence: μ of the budget times the units of a class.

In each data set of the table, accuracy between guessing and certainty follows evidence closely, whatever n and ε it is
made of. A job is expected between the data sets of its shape. Where a shape has only one, others may be harder or
easier; where no such job was measured the range is a guess, and wider. `python -m benchmarks.panel --check` compares
plans with results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from datalens_service.base.errors import InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.methods.expected_quality import FAIR_EVIDENCE, count_evidence, is_drowned
from datalens_service.planning.job_names import choose
from datalens_service.planning.reached import Measured
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.spec import TrainingSpec

_DELTA_OF_TABLE: Final = 1e-5
_WIDTH: Final = 2.0
_OTHER_SETS: Final = 0.25
"""Share of the gain, and of the remaining gap, by which a second data set may differ from a single one."""
_GUESSED_LOW, _GUESSED_HIGH, _GUESSED_LEAST = 0.6, 0.15, 0.03
_HELPED: Final = 0.15
_MOST: Final = 0.97
_CLASSES_ALIKE: Final = 2.0
_SIDES_ALIKE: Final = 1.45
_AVERAGES: Final = 0.7
"""Least share of the gain of pooled moments that noisy class averages reach."""
_NEAR: Final = 0.05
_BEST_AVERAGES: Final = 0.92
_CLOSE: Final = 0.05
"""Tolerance of log₁₀ of evidence, since δ of the table differs from that of most jobs."""
_POOLED: Final = "pooled_moments"


class Range(NamedTuple):
    """A range of percentages."""

    low: float
    high: float
    measured: bool = True


class _Curve(NamedTuple):
    """Gain over guessing of one data set, from 0 to 1, at two spreads below and above, by log₁₀ of evidence."""

    at: np.ndarray
    lows: np.ndarray
    highs: np.ndarray

    def read(self, evidence: float) -> tuple[float, float]:
        """Interpolate; beyond the last row the curve is flat, below the first it falls towards nothing."""
        place = math.log10(max(evidence, 1.0))
        return float(np.interp(place, self.at, self.lows)), float(np.interp(place, self.at, self.highs))

    def covers(self, evidence: float) -> bool:
        """Tell whether rows lie on both sides, or near; the first point is none."""
        return evidence >= 1 and bool(self.at[1] - _CLOSE <= math.log10(evidence) <= self.at[-1] + _CLOSE)

    def is_below(self, evidence: float) -> bool:
        """Tell whether no row has as much evidence."""
        return bool(self.at[-1] < math.log10(max(evidence, 1.0)))


def count_planned_evidence(spec: TrainingSpec, schema: Schema) -> float:
    """Return μ of the budget times the units of a class."""
    return count_evidence(schema, mu_for_epsilon(spec.epsilon, spec.delta_at(schema)))


def expect_accuracy(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured]) -> Range:
    """Return the expected accuracy of a classifier that learned from the result; unknown methods may reach nothing."""
    near, evidence = nearest_shape(rows, schema), count_planned_evidence(spec, schema)
    same = _find_same(near, spec, schema, evidence)
    if not same:
        return _guess(spec, schema, rows, [row for row in near if _is_of(row, spec)] or near)
    curves = _draw_curves(same)
    low, high = _read(curves, evidence)
    if all(curve.covers(evidence) for curve in curves):
        return _percent(schema, low, high)
    # With more than was measured it reaches no less.
    least = low if all(curve.is_below(evidence) for curve in curves) else _GUESSED_LOW * low
    return _percent(schema, least, _widen(high))._replace(measured=False)


def _find_same(near: Sequence[Measured], spec: TrainingSpec, schema: Schema, evidence: float) -> list[Measured]:
    """Find rows with the same settings on images and classes like these: of the method, or of its preset."""
    if spec.public_data is not None or not near or not _is_shaped(near[0], schema):
        return []
    presets = {row.preset for row in near if _makes(row.preset, spec, schema)}
    of_presets = [row for row in near if row.preset in presets and row.encoder == _name_encoder(spec)]
    of_method = [row for row in of_presets if _is_of(row, spec)]
    covered = bool(of_method) and all(curve.covers(evidence) for curve in _draw_curves(of_method))
    return of_method if covered else of_presets


def _guess(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured], near: Sequence[Measured]) -> Range:
    family = [row for row in near if row.is_of_images == (spec.method.result == "generator")]
    low, high = _read(_draw_curves(family), count_planned_evidence(spec, schema))
    helped = spec.public_data is not None or spec.method.public_inputs().has_weights
    least = _GUESSED_LOW * low if _is_known(spec, schema, rows) else 0.0
    return _percent(schema, least, _widen(high + helped * _HELPED))._replace(measured=False)


def guess_averages(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured]) -> Range:
    """Guess the accuracy of noisy class averages at the same budget, from that of pooled moments; it is always a guess.

    With scarce evidence pooled moments shrink towards what classes share, and averages drown.
    """
    near, evidence = nearest_shape(rows, schema), count_planned_evidence(spec, schema)
    curves = _draw_curves([row for row in near if row.method == _POOLED] or [row for row in near if row.is_of_images])
    low, high = _read(curves, evidence)
    alike = bool(near) and _is_shaped(near[0], schema)
    least = _AVERAGES if alike and evidence >= FAIR_EVIDENCE else 0.0
    most = _NEAR if alike else _GUESSED_HIGH
    return _percent(schema, least * low, min(high + most, _BEST_AVERAGES))._replace(measured=False)


def _widen(high: float) -> float:
    """Widen the upper end of a guess; with next to no evidence next to nothing is reached, whatever the images."""
    return min(_MOST, high + max(_GUESSED_LEAST, min(_GUESSED_HIGH, high / 2)))


def nearest_shape(rows: Sequence[Measured], schema: Schema) -> list[Measured]:
    """Return the rows of images in as many colours, if there are any, of the nearest size."""
    coloured = [row for row in rows if (row.channels > 1) == (schema.channels > 1)] or list(rows)
    if not coloured:
        return []
    side = min(
        {row.side for row in coloured}, key=lambda known: abs(math.log(known / math.sqrt(schema.height * schema.width)))
    )
    return [row for row in coloured if row.side == side]


def _is_of(row: Measured, spec: TrainingSpec) -> bool:
    return row.method == spec.method.name and row.encoder == _name_encoder(spec)


def _name_encoder(spec: TrainingSpec) -> str | None:
    encoder = spec.method.public_inputs().encoder
    return None if encoder is None else encoder.name


def _is_known(spec: TrainingSpec, schema: Schema, rows: Sequence[Measured]) -> bool:
    """Tell whether a result can be relied on: the method was measured, if on other images, and makes no noise."""
    known = spec.method.facts.measured_as in {row.method for row in rows}
    return known and not is_drowned(spec.method, schema, spec.limit_units(schema))


def _makes(name: str, spec: TrainingSpec, schema: Schema) -> bool:
    try:
        return choose(name, schema, spec.epsilon) == spec.method
    except InvalidSpec:
        return False


def _is_shaped(row: Measured, schema: Schema) -> bool:
    sides = (schema.height / row.side, schema.width / row.side)
    classes = schema.num_classes / row.num_classes
    return (
        row.channels == schema.channels
        and schema.records_per_unit == 1
        and all(1 / _SIDES_ALIKE <= ratio <= _SIDES_ALIKE for ratio in sides)
        and 1 / _CLASSES_ALIKE <= classes <= _CLASSES_ALIKE
    )


def _draw_curves(rows: Sequence[Measured]) -> list[_Curve]:
    return [_draw([row for row in rows if row.dataset == name]) for name in sorted({row.dataset for row in rows})]


def _draw(rows: Sequence[Measured]) -> _Curve:
    """Draw a curve through nothing at no evidence; more evidence never reaches less."""
    points = sorted({(_log_evidence(row), *_gains(row)) for row in rows})
    at, lows, highs = (np.array(column) for column in zip((0.0, 0.0, 0.0), *points, strict=True))
    return _Curve(at, np.maximum.accumulate(lows), np.maximum.accumulate(highs))


def _read(curves: Sequence[_Curve], evidence: float) -> tuple[float, float]:
    """Read the range of all data sets; a single one stands for others too."""
    if not curves:
        return 0.0, 1.0
    lows, highs = zip(*(curve.read(evidence) for curve in curves), strict=True)
    low, high = min(lows), max(highs)
    if len(curves) > 1:
        return low, high
    return (1 - _OTHER_SETS) * low, high + min(_OTHER_SETS * (1 - high), high)


@cache
def _log_evidence(row: Measured) -> float:
    return math.log10(max(1.0, mu_for_epsilon(row.epsilon, _DELTA_OF_TABLE) * row.units / row.num_classes))


@cache
def _gains(row: Measured) -> tuple[float, float]:
    guessing = 100 / row.num_classes
    ends = (row.mean - _WIDTH * row.spread, row.mean + _WIDTH * row.spread)
    low, high = (min(1.0, max(0.0, (end - guessing) / (100 - guessing))) for end in ends)
    return low, high


def _percent(schema: Schema, low: float, high: float) -> Range:
    guessing = 100 / schema.num_classes
    low, high = (guessing + (100 - guessing) * share for share in (max(0.0, low), high))
    return Range(math.floor(10 * low) / 10, math.ceil(10 * min(high, 100.0)) / 10)
