"""The expected results of a job, by a table of jobs that were measured: public numbers alone.

The table is `expectations.json`, made by `benchmarks/expectations.py`: grey images of 28×28 pixels of an easy and a
hard data set, photographs in colour and grey faces. `curves.py` reads accuracy off it, `resources.py` time and memory.
Advice says in a sentence what a job is good for, and what would change that; seconds of each phase are weights of a
job's progress.
"""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from datalens_service.base.errors import DatalensError, LowUtility
from datalens_service.base.progress import Phase
from datalens_service.base.wording import speak
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.settings import MOST_ENCODED
from datalens_service.methods import AnyMethod, LabelledPool
from datalens_service.methods.expected_quality import FAIR_EVIDENCE, Looks, judge_looks
from datalens_service.methods.facts import LEAST_EVIDENCE
from datalens_service.planning import curves, resources
from datalens_service.planning.curves import count_planned_evidence
from datalens_service.planning.job_names import OFFERED, POOL, TITLES, choose
from datalens_service.planning.presets import DEFAULT_PRESET, explain_auto, preset
from datalens_service.planning.reached import Alternative, Comparison, Expectation, Measured, tell_range
from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.spec import PlanSummary, TrainingSpec

_BETTER: Final = 5
"""A classifier is recommended if it is better than images by so many points."""
_SEEN: Final[dict[Looks, str]] = {
    "noise": "Expect noise rather than pictures.",
    "soft": "Expect blurs: rough shapes and tones, without detail.",
    "recognisable": "Expect recognisable shapes with rough texture.",
    "like photographs": "Expect images that look like the public ones, with labels that were learned.",
}
_SCARCE: Final = "Expect smudges: rough tones of a class at most."


def advise(spec: TrainingSpec, schema: Schema, expected: Expectation, labels: Expectation | None) -> dict[str, Any]:
    """Return the members `looks`, `verdict` and `warning` of an expectation.

    Args:
        labels: The expectation of a classifier instead of images.
    """
    looks = judge_looks(spec.method, schema, spec.limit_units(schema))
    if is_of_little_use(spec, schema):
        verdict = speak(_say_little(spec, schema))
        return {"looks": looks, "verdict": verdict, "warning": verdict}
    if spec.method.result != "generator":
        return {"looks": looks, "verdict": _say_labels(expected)}
    scarce = looks == "soft" and count_planned_evidence(spec, schema) < FAIR_EVIDENCE
    seen = [_SCARCE] if scarce else [_SEEN[looks]] if looks else []
    return {"looks": looks, "verdict": " ".join([*seen, *_say_accuracy(expected, labels)])}


def is_of_little_use(spec: TrainingSpec, schema: Schema) -> bool:
    """Tell whether the budget drowns what the images of a class have in common, whatever the method."""
    return count_planned_evidence(spec, schema) < LEAST_EVIDENCE


def check_utility(spec: TrainingSpec, schema: Schema) -> None:
    """Refuse a job that is of little use.

    Raises:
        LowUtility: The sentence says what would change that.
    """
    if is_of_little_use(spec, schema):
        raise LowUtility(f"{_say_little(spec, schema)} To go on anyway, ⟦accept_low_utility⟧.")


def _say_little(spec: TrainingSpec, schema: Schema) -> str:
    per_class = max(1, schema.num_units // schema.num_classes)
    needed = FAIR_EVIDENCE * schema.num_classes / mu_for_epsilon(spec.epsilon, spec.delta_at(schema))
    digits = 10 ** max(0, math.floor(math.log10(needed)) - 1)
    return (
        f"Of little use: about {per_class:,} {schema.unit}{'' if per_class == 1 else 's'} of a class tell little more "
        f"than noise at this ⟦spec.epsilon⟧. About {math.ceil(needed / digits) * digits:,} {schema.unit}s in all would "
        "do, or a larger ⟦spec.epsilon⟧, fewer classes, or public images of a similar kind."
    )


def _say_labels(expected: Expectation) -> str:
    return (
        f"This classifier is expected to label {_reach(expected, 'of real images correctly')}; guessing, where "
        f"classes are equally frequent, reaches {expected.guessing:.0f} %."
    )


def _say_accuracy(expected: Expectation, labels: Expectation | None) -> Iterator[str]:
    averages = tell_range(expected.class_averages_low, expected.class_averages_high)
    yield f"A classifier trained on them is expected to label {_reach(expected, 'of real images correctly')}."
    yield (
        f"One trained on noisy class averages may reach {averages}; guessing, where classes are equally frequent, "
        f"{expected.guessing:.0f} %."
    )
    if not expected.measured and expected.accuracy_high < expected.class_averages_high:
        yield "We cannot promise more than class averages give."
    if labels is not None and labels.middle > expected.middle + _BETTER:
        yield f"A private classifier instead of images is expected to label {_reach(labels, 'correctly')}."


def _reach(expected: Expectation, measured: str) -> str:
    guessed = "" if expected.measured else " (a guess)"
    return f"{tell_range(expected.accuracy_low, expected.accuracy_high)} {measured}{guessed}"


TABLE: Final = Path(__file__).with_name("expectations.json")
_BASIS: Final = (
    "Measured in jobs with about as many images of a class at such an ε, on images like these in number of classes, "
    "colours and size: "
)
_GUESSED: Final = (
    "A guess: no job like this one was measured. It rests on jobs with images of the nearest kind, about as many of a "
    "class at such an ε."
)
_UNKNOWN: Final = "Unknown: no job with such teachers was measured with a guarantee, so the range is meaningless."
_NAMES: Final = {
    "mnist": "written digits",
    "fashion_mnist": "clothes",
    "cifar10": "photographs of things and animals",
    "smiles64": "faces",
}
_PLACEHOLDER: Final = "public"
"""The name of public images that are not named yet."""


class PlanWithExpectation(PlanSummary):
    """The cost of a plan, and the results of jobs like it."""

    expectation: Expectation | None = None
    comparison: Comparison | None = None


def expect(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Expectation:
    """Return what is known of jobs like this one, or guessed, with a verdict.

    Args:
        calibration_seconds: Speed of the machine; None takes that of the table.
    """
    reached = estimate(spec, schema, calibration_seconds)
    averages = curves.guess_averages(spec, schema, read_table())
    told = {"class_averages_low": averages.low, "class_averages_high": averages.high}
    compared = reached.model_copy(update={**told, "guessing": round(100 / schema.num_classes, 1)})
    return compared.model_copy(update=advise(spec, schema, compared, _expect_labels(spec, schema)))


def estimate(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Expectation:
    """Estimate accuracy, time and memory alone."""
    rows = read_table()
    reached = curves.expect_accuracy(spec, schema, rows)
    return Expectation(
        accuracy_low=reached.low,
        accuracy_high=reached.high,
        measured=reached.measured,
        training_seconds=round(resources.expect_seconds(spec, schema, rows, calibration_seconds), 1),
        memory_bytes=resources.expect_memory(spec.method, schema),
        disk_bytes=resources.expect_disk(spec.method, schema),
        basis=_name_basis(spec, schema) if reached.measured else _say_guessed(spec),
        warning="",
    )


def compare(spec: TrainingSpec, schema: Schema, calibration_seconds: float | None = None) -> Comparison:
    """Compare every method that could serve, each at the ε of a planned job."""
    made: dict[AnyMethod, list[str]] = {}
    for name in (*OFFERED, POOL):
        made.setdefault(choose(name, schema, spec.epsilon), []).append(name)
    methods = [_serve(method, names, spec, schema, calibration_seconds) for method, names in made.items()]
    reason = explain_auto(schema, spec.epsilon)
    return Comparison(methods=[method for method in methods if method is not None], reason=reason)


def _serve(
    method: AnyMethod, names: list[str], spec: TrainingSpec, schema: Schema, calibration: float | None
) -> Alternative | None:
    """Return a row; None for public images that change nothing, and for a method that these images do not fit."""
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
    """Estimate the result of a classifier instead of images."""
    if spec.method.result != "generator":
        return None
    try:
        method = preset("classifier", schema, spec.epsilon)
        return estimate(TrainingSpec(method=method, epsilon=spec.epsilon, delta=spec.delta), schema)
    except DatalensError:
        return None


def _say_guessed(spec: TrainingSpec) -> str:
    return _UNKNOWN if resources.has_conv(spec.method) else _GUESSED


def _name_basis(spec: TrainingSpec, schema: Schema) -> str:
    names = {row.dataset for row in curves.nearest_shape(read_table(), schema) if row.method == spec.method.name}
    return _BASIS + ", ".join(sorted(_NAMES.get(name, name) for name in names)) + "."


@functools.lru_cache(maxsize=1)
def _load(changed: int) -> tuple[Measured, ...]:
    return tuple(Measured.model_validate(row) for row in json.loads(TABLE.read_text(encoding="utf-8")))


def read_table() -> tuple[Measured, ...]:
    """Read all rows; none before the first was measured."""
    return _load(TABLE.stat().st_mtime_ns) if TABLE.exists() else ()


_SIDE: Final = 320
_ROUNDS: Final = 5


@cache
def measure_machine() -> float:
    """Measure processor seconds of matrix products, transforms and exponentials, the fastest of five rounds.

    It runs once per process, and takes 15 ms in all.
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


_CALIBRATION: Final = 0.0018
"""Result of `measure_machine` on the machine that the constants below were measured on."""
_DIMENSIONS: Final = 28 * 28
_SMALL: Final = 32 * 32
_WITH_CROPS: Final = 4
"""An image and its crops."""
_TRAINED_IMAGE: Final = 3.5e-4
"""Seconds of the standard CNN per image and step."""
_ENCODED_IMAGE: Final = 0.008
_FIDELITY_SECONDS: Final = 10.0
_FILES_SECONDS: Final = 3.0


def expect_phases(spec: TrainingSpec, schema: Schema) -> dict[str, float]:
    """Estimate the seconds of each phase by its name; phases that a job leaves out are missing."""
    slower = measure_machine() / _CALIBRATION
    training = resources.expect_seconds(spec, schema, read_table(), measure_machine())
    drawing = _expect_drawing(spec, schema) * slower
    fitting = _expect_fitting(spec.method, training)
    phases = {Phase.TRAINING: training, Phase.FITTING: fitting, Phase.DRAWING: drawing}
    phases[Phase.PACKAGING] = _FILES_SECONDS * slower
    if spec.evaluation.enabled:
        phases[Phase.EVALUATING] = _expect_evaluation(spec, schema) * slower
        # The images are remembered.
        phases[Phase.REPORTING] = _FILES_SECONDS * slower
    return {phase.value: round(seconds, 1) for phase, seconds in phases.items()}


def _expect_fitting(method: AnyMethod, training: float) -> float:
    """Estimate the labelling of a pool as large as the private set: an image, or a crop, takes the time of a record."""
    if not isinstance(method, LabelledPool):
        return 0.01 * training
    return training * (_WITH_CROPS if method.crops else 1)


def _expect_drawing(spec: TrainingSpec, schema: Schema) -> float:
    return spec.method.facts.image_seconds * spec.synthetic_images * schema.dimensions / _DIMENSIONS


def _expect_evaluation(spec: TrainingSpec, schema: Schema) -> float:
    """Estimate the training of classifiers on synthetic images, on those of simpler releases and on real ones."""
    if spec.method.result != "generator":
        return _FILES_SECONDS
    settings = spec.evaluation.bounded_for(schema)
    trainings = (1 + settings.floors + settings.ceiling) * settings.repetitions
    pixels = min(schema.height * schema.width, _SMALL) / _DIMENSIONS
    seconds = _TRAINED_IMAGE * pixels * settings.steps * settings.batch_size
    seconds += _ENCODED_IMAGE * min(settings.synthetic_images, MOST_ENCODED) * settings.stronger_classifier
    return seconds * trainings + _FIDELITY_SECONDS * len(settings.fidelity)
