"""What a job will probably reach, by a table of jobs that were measured: public numbers alone.

The table (`expectations.json`, made by `benchmarks/expectations.py`) has two data sets, an easy and a hard one. A job
is expected between them; one that is like none of the table is guessed (`guesses.py`).
"""

import functools
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from datalens_service.data.dataset import Schema
from datalens_service.errors import DatalensError
from datalens_service.planning import guesses
from datalens_service.planning.advice import advise
from datalens_service.planning.presets import preset
from datalens_service.planning.reached import Expectation, Measured
from datalens_service.spec import PlanSummary, TrainingSpec

TABLE: Final = Path(__file__).with_name("expectations.json")
_SIDES: Final = (20, 40)
_CLASSES: Final = (5, 20)
_WIDTH: Final = 2.0


class PlanWithExpectation(PlanSummary):
    """What a plan costs, and what jobs like it reached."""

    expectation: Expectation | None = None


_BASIS: Final = (
    "Measured on grey images of 28×28 pixels in ten classes: written digits (MNIST, the upper end) and clothes "
    "(Fashion-MNIST, the lower end)."
)

_GUESSED: Final = (
    "A guess: no such job was measured, so it rests on grey images of 28×28 pixels with as many images of a class."
)


def expect(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Expectation:
    """What is known of jobs like this one, or guessed, beside what is simpler, with a verdict.

    Args:
        calibration_seconds: Of this machine (`measure_machine`); None: as fast as those of the table.
    """
    reached = estimate(spec, schema, calibration_seconds)
    averages = guesses.guess_averages(spec, schema, read_table(), measured=reached.measured)
    told = {"class_averages_low": averages.low, "class_averages_high": averages.high}
    compared = reached.model_copy(update={**told, "guessing": round(100 / schema.num_classes, 1)})
    return compared.model_copy(update=advise(spec, schema, compared, _expect_labels(spec, schema)))


def estimate(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Expectation:
    """Accuracy and time alone, quickly."""
    # No job of the table started from public images.
    like = spec.public_data is None and _is_like_the_table(schema)
    grids = _grids(spec, schema) if like else []
    return _measured(grids, spec, schema, calibration_seconds) or _guessed(spec, schema, calibration_seconds)


def _expect_labels(spec: TrainingSpec, schema: Schema) -> Expectation | None:
    """What a classifier would reach instead of images."""
    if spec.method.result != "generator":
        return None
    try:
        method = preset("classifier", schema, spec.epsilon)
        return estimate(TrainingSpec(method=method, epsilon=spec.epsilon, delta=spec.delta), schema)
    except DatalensError:
        return None


def _guessed(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None) -> Expectation:
    accuracy = guesses.guess_accuracy(spec, schema, read_table())
    return Expectation(
        accuracy_low=accuracy.low,
        accuracy_high=accuracy.high,
        measured=False,
        training_seconds=round(guesses.guess_seconds(spec, schema, read_table(), calibration_seconds), 1),
        basis=_GUESSED,
        warning="",
    )


def _measured(
    grids: list[list[Measured]], spec: TrainingSpec, schema: Schema, calibration_seconds: float | None
) -> Expectation | None:
    if not grids:
        return None
    at = schema.num_units, spec.epsilon
    lows = [_interpolate(grid, *at, lambda row: row.mean - _WIDTH * row.spread) for grid in grids]
    highs = [_interpolate(grid, *at, lambda row: row.mean + _WIDTH * row.spread) for grid in grids]
    seconds = max(_interpolate(grid, *at, lambda row: row.seconds_on(calibration_seconds)) for grid in grids)
    return Expectation(
        accuracy_low=max(0.0, math.floor(10 * min(lows)) / 10),
        accuracy_high=min(100.0, math.ceil(10 * max(highs)) / 10),
        training_seconds=round(seconds, 1),
        basis=_BASIS,
        warning="",
    )


@functools.lru_cache(maxsize=1)
def _load(changed: int) -> tuple[Measured, ...]:
    return tuple(Measured.model_validate(row) for row in json.loads(TABLE.read_text(encoding="utf-8")))


def read_table() -> tuple[Measured, ...]:
    """All rows; none before the first was measured."""
    return _load(TABLE.stat().st_mtime_ns) if TABLE.exists() else ()


def _grids(spec: TrainingSpec, schema: Schema) -> list[list[Measured]]:
    """The rows of each data set, of a preset that makes just this method and was measured around this job."""
    for name in sorted({row.preset for row in read_table()}):
        if preset(name, schema, spec.epsilon) == spec.method:
            rows = [row for row in read_table() if row.preset == name]
            grids = [
                [row for row in rows if row.dataset == dataset] for dataset in sorted({row.dataset for row in rows})
            ]
            if all(_covers(grid, schema.num_units, spec.epsilon) for grid in grids):
                return grids
    return []


def _is_like_the_table(schema: Schema) -> bool:
    sides = _SIDES[0] <= min(schema.height, schema.width) and max(schema.height, schema.width) <= _SIDES[1]
    records = schema.records_per_unit == 1
    return schema.channels == 1 and sides and records and _CLASSES[0] <= schema.num_classes <= _CLASSES[1]


def _covers(grid: Sequence[Measured], units: int, epsilon: float) -> bool:
    """Whether all four corners around (units, ε) were measured."""
    return all(corner is not None for corner, _ in _corners(grid, units, epsilon))


def _interpolate(grid: Sequence[Measured], units: int, epsilon: float, figure: Callable[[Measured], float]) -> float:
    """Linear in the logarithms of units and ε."""
    return sum(weight * figure(row) for row, weight in _corners(grid, units, epsilon) if row is not None)


def _corners(grid: Sequence[Measured], units: int, epsilon: float) -> list[tuple[Measured | None, float]]:
    """The rows around (units, ε) with their weights; None where one is missing.

    What a job reaches follows n·ε, so the square of four rows is cut into two triangles along the rows whose n·ε is
    alike: many units at a low ε, and few units at a high one. The three rows of one triangle count.
    """
    by_place = {(row.units, row.epsilon): row for row in grid}
    along_units = _bracket(sorted({float(row.units) for row in grid}), units)
    along_epsilon = _bracket(sorted({row.epsilon for row in grid}), epsilon)
    if along_units is None or along_epsilon is None:
        return [(None, 1.0)]
    (few, many, first), (low, high, second) = along_units, along_epsilon
    near = (few, low) if first + second <= 1 else (many, high)
    weights = {near: abs(1 - first - second)}
    weights[many, low] = weights.get((many, low), 0.0) + min(first, 1 - second)
    weights[few, high] = weights.get((few, high), 0.0) + min(second, 1 - first)
    return [(by_place.get((int(size), budget)), weight) for (size, budget), weight in weights.items() if weight]


def _bracket(values: Sequence[float], at: float) -> tuple[float, float, float] | None:
    """The neighbours of `at` among sorted values, and how far it lies between them; None outside of them."""
    if not values or not values[0] <= at <= values[-1]:
        return None
    above = next(value for value in values if value >= at)
    below = max(value for value in values if value <= at)
    return below, above, 0.0 if below == above else math.log(at / below) / math.log(above / below)


_SIDE: Final = 320
_ROUNDS: Final = 5


@cache
def measure_machine() -> float:
    """Processor seconds of matrix products, transforms and exponentials, the fastest of five rounds.

    Once per process, 15 ms in all.
    """
    rng = np.random.default_rng(0)
    matrix, images = rng.standard_normal((_SIDE, _SIDE)), rng.standard_normal((100, 28, 28))
    return min(_work(matrix, images) for _ in range(_ROUNDS))


def _work(matrix: np.ndarray, images: np.ndarray) -> float:
    began = time.thread_time()
    # Nothing that some processors do many times as fast as others, as sorting with AVX-512.
    total = (matrix @ matrix).sum() + np.abs(np.fft.rfft2(images)).sum() + np.exp(matrix).sum()
    taken = time.thread_time() - began
    return taken if np.isfinite(total) else np.inf
