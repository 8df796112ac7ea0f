"""What a job will probably reach, by a table of jobs that were measured: public numbers alone.

The table (`expectations.json`, made by `benchmarks/expectations.py`) has two data sets, an easy and a hard one. A job
is expected between them.
"""

import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from datalens_service.data.dataset import Schema
from datalens_service.planning.presets import preset
from datalens_service.spec import PlanSummary, TrainingSpec
from datalens_service.voices import speak

TABLE: Final = Path(__file__).with_name("expectations.json")
_SIDES: Final = (20, 40)
_CLASSES: Final = (5, 20)
# Three seeds say little about their spread.
_LEAST_SPREAD: Final = 0.5
_WIDTH: Final = 2.0
_TIMES_CHANCE: Final = 5


class Measured(BaseModel):
    """A row of the table: jobs of one preset, size and ε."""

    model_config = ConfigDict(frozen=True)

    dataset: str
    preset: str
    method: str
    units: int
    epsilon: float
    accuracies: tuple[float, ...]
    training_seconds: float
    calibration_seconds: float
    synthetic_images: int
    epochs: int
    commit: str
    machine: str

    @property
    def job(self) -> tuple[str, str, int, float]:
        """What was run."""
        return self.dataset, self.preset, self.units, self.epsilon

    def seconds_on(self, calibration_seconds: float | None) -> float:
        """Training on a machine with that calibration; None: on the one that measured this row, as busy as it was."""
        slower = calibration_seconds / self.calibration_seconds if calibration_seconds else 1.0
        return self.training_seconds * slower

    @property
    def mean(self) -> float:
        """Accuracy in percent."""
        return statistics.mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Of the accuracy over seeds, in percentage points."""
        return max(_LEAST_SPREAD, statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0)


class Expectation(BaseModel):
    """What jobs like this one reached."""

    model_config = ConfigDict(frozen=True)

    accuracy_low: float = Field(description="Percent, from the harder data set of the table, less twice its spread.")
    accuracy_high: float = Field(description="Percent, from the easier data set of the table, and twice its spread.")
    training_seconds: float = Field(
        description="Processor seconds of training on one core of the machine that plans; "
        "drawing and measuring the images come on top."
    )
    basis: str = Field(description="What was measured, in a sentence.")
    warning: str = Field(
        description="What to change where such jobs are right less than five times as often as guesses; else empty."
    )


class PlanWithExpectation(PlanSummary):
    """What a plan costs, and what jobs like it reached."""

    expectation: Expectation | None = None


_BASIS: Final = (
    "Measured on grey images of 28×28 pixels in ten classes: written digits (MNIST, the upper end) and clothes "
    "(Fashion-MNIST, the lower end)."
)

_TOO_LITTLE: Final = (
    "Such jobs are right less than five times as often as guesses. Train on more images or raise ⟦spec.epsilon⟧."
)


def expect(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Expectation | None:
    """What is known of jobs like this one; None where nothing was measured.

    Args:
        spec: Of the job; its method must be that of a measured preset.
        calibration_seconds: Of this machine (`measure_machine`); None: as fast as those of the table.
    """
    at = schema.num_units, spec.epsilon
    # No job of the table started from public images.
    measured = spec.public_data is None and _is_like_the_table(schema)
    grids = _grids(spec, schema) if measured else []
    if not grids:
        return None
    lows = [_interpolate(grid, *at, lambda row: row.mean - _WIDTH * row.spread) for grid in grids]
    highs = [_interpolate(grid, *at, lambda row: row.mean + _WIDTH * row.spread) for grid in grids]
    seconds = max(_interpolate(grid, *at, lambda row: row.seconds_on(calibration_seconds)) for grid in grids)
    middle = statistics.mean(_interpolate(grid, *at, lambda row: row.mean) for grid in grids)
    return Expectation(
        accuracy_low=max(0.0, math.floor(10 * min(lows)) / 10),
        accuracy_high=min(100.0, math.ceil(10 * max(highs)) / 10),
        training_seconds=round(seconds, 1),
        basis=_BASIS,
        warning="" if middle * schema.num_classes >= 100 * _TIMES_CHANCE else speak(_TOO_LITTLE),
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
