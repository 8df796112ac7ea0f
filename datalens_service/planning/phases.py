"""Seconds of each phase of a planned job, on one core: what plans say, and weights of a job's progress.

Seconds were measured on one machine; `measure_machine` says how fast the machine is that plans.
"""

import time
from functools import cache
from typing import Final

import numpy as np

from datalens_service.base.progress import Phase
from datalens_service.data.dataset import Schema
from datalens_service.evaluation.settings import MOST_ENCODED
from datalens_service.methods import AnyMethod, LabelledPool
from datalens_service.planning import resources
from datalens_service.planning.measured import read_rows
from datalens_service.spec import TrainingSpec

_DIMENSIONS: Final = 28 * 28
_SMALL: Final = 32 * 32
_WITH_CROPS: Final = 4
"""An image and its crops."""
_TRAINED_IMAGE: Final = 4.8e-4
"""Seconds of the standard CNN per image of 28×28 pixels and step."""
_STEP: Final = 5e-3
"""Seconds of a step beside its images."""
_ENCODED_IMAGE: Final = 0.008
_FIDELITY_SECONDS: Final = 10.0
_FILES_SECONDS: Final = 3.0


def expect_phases(spec: TrainingSpec, schema: Schema) -> dict[str, float]:
    """Estimate the seconds of each phase by its name; phases that a job leaves out are missing."""
    slower = measure_machine() / CALIBRATION
    training = resources.expect_seconds(spec, schema, read_rows(), measure_machine())
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
    seconds = settings.steps * (_STEP + _TRAINED_IMAGE * pixels * settings.batch_size)
    seconds += _ENCODED_IMAGE * min(settings.synthetic_images, MOST_ENCODED) * settings.stronger_classifier
    return seconds * trainings + _FIDELITY_SECONDS * len(settings.fidelity)


CALIBRATION: Final = 0.0018
"""Result of `measure_machine` on the machine that constants of seconds were measured on."""
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
