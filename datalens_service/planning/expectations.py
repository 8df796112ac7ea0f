"""What a job will probably reach, by a table of jobs that were measured: public numbers alone.

The table is `expectations.json`, made by `benchmarks/expectations.py`: grey images of 28×28 pixels of an easy and a
hard data set, photographs in colour and grey faces. `curves.py` reads accuracy off it, `resources.py` time and memory.
"""

import functools
import json
import time
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from datalens_service.data.dataset import Schema
from datalens_service.errors import DatalensError
from datalens_service.methods import AnyMethod
from datalens_service.methods.appearance import judge_looks
from datalens_service.planning import curves, resources
from datalens_service.planning.advice import advise
from datalens_service.planning.job_names import OFFERED, POOL, TITLES, choose
from datalens_service.planning.presets import DEFAULT_PRESET, explain_auto, preset
from datalens_service.planning.reached import Alternative, Comparison, Expectation, Measured
from datalens_service.spec import PlanSummary, TrainingSpec

TABLE: Final = Path(__file__).with_name("expectations.json")
_BASIS: Final = (
    "Measured with as much evidence (μ times images of a class) on images like these in number of classes, colours and "
    "size: "
)
_GUESSED: Final = (
    "A guess: no such job was measured. It rests on jobs with as much evidence (μ times the protected units of a "
    "class), on images of the nearest kind."
)
_NAMES: Final = {
    "mnist": "written digits",
    "fashion_mnist": "clothes",
    "cifar10": "photographs of things and animals",
    "smiles64": "faces",
}
_PLACEHOLDER: Final = "public"
"""Of public images that are not named yet."""


class PlanWithExpectation(PlanSummary):
    """What a plan costs, and what jobs like it reached."""

    expectation: Expectation | None = None
    comparison: Comparison | None = None


def expect(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Expectation:
    """What is known of jobs like this one, or guessed, with a verdict; without `calibration_seconds` as fast as those
    of the table."""
    reached = estimate(spec, schema, calibration_seconds)
    averages = curves.guess_averages(spec, schema, read_table())
    told = {"class_averages_low": averages.low, "class_averages_high": averages.high}
    compared = reached.model_copy(update={**told, "guessing": round(100 / schema.num_classes, 1)})
    return compared.model_copy(update=advise(spec, schema, compared, _expect_labels(spec, schema)))


def estimate(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Expectation:
    """Accuracy, time and memory alone."""
    rows = read_table()
    reached = curves.expect_accuracy(spec, schema, rows)
    return Expectation(
        accuracy_low=reached.low,
        accuracy_high=reached.high,
        measured=reached.measured,
        training_seconds=round(resources.expect_seconds(spec, schema, rows, calibration_seconds), 1),
        memory_bytes=resources.expect_memory(spec.method, schema),
        basis=_name_basis(spec, schema) if reached.measured else _GUESSED,
        warning="",
    )


def compare(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Comparison:
    """Every method that could serve, each at the ε of a planned job."""
    made: dict[AnyMethod, list[str]] = {}
    for name in (*OFFERED, POOL):
        made.setdefault(choose(name, schema, spec.epsilon), []).append(name)
    methods = [_serve(method, names, spec, schema, calibration_seconds) for method, names in made.items()]
    reason = explain_auto(schema, spec.epsilon)
    return Comparison(methods=[method for method in methods if method is not None], reason=reason)


def _serve(
    method: AnyMethod, names: list[str], spec: TrainingSpec, schema: Schema, calibration: float | None
) -> Alternative | None:
    """A row; None of public images where they change nothing, and of a method that these images do not fit."""
    public = spec.public_data or _PLACEHOLDER if method.needs_public_images else None
    if names == [POOL] and public is None:
        return None
    try:
        asked = TrainingSpec(method=method, epsilon=spec.epsilon, delta=spec.delta, public_data=public)
        expected = estimate(asked, schema, calibration)
    except DatalensError:
        return None
    return Alternative(
        choices=names,
        title=", ".join(TITLES[name] for name in names if name != POOL or len(names) == 1),
        method=method.name,
        default=DEFAULT_PRESET in names,
        needs_public_images=public is not None,
        accuracy_low=expected.accuracy_low,
        accuracy_high=expected.accuracy_high,
        measured=expected.measured,
        looks=judge_looks(method, schema, asked.limit_units(schema)),
        training_seconds=expected.training_seconds,
        memory_bytes=expected.memory_bytes,
    )


def _expect_labels(spec: TrainingSpec, schema: Schema) -> Expectation | None:
    """What a classifier would reach instead of images."""
    if spec.method.result != "generator":
        return None
    try:
        method = preset("classifier", schema, spec.epsilon)
        return estimate(TrainingSpec(method=method, epsilon=spec.epsilon, delta=spec.delta), schema)
    except DatalensError:
        return None


def _name_basis(spec: TrainingSpec, schema: Schema) -> str:
    names = {row.dataset for row in curves.nearest_shape(read_table(), schema) if row.method == spec.method.name}
    return _BASIS + ", ".join(sorted(_NAMES.get(name, name) for name in names)) + "."


@functools.lru_cache(maxsize=1)
def _load(changed: int) -> tuple[Measured, ...]:
    return tuple(Measured.model_validate(row) for row in json.loads(TABLE.read_text(encoding="utf-8")))


def read_table() -> tuple[Measured, ...]:
    """All rows; none before the first was measured."""
    return _load(TABLE.stat().st_mtime_ns) if TABLE.exists() else ()


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
