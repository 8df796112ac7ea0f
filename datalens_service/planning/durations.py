"""Seconds that each phase of a job will take on this machine, by public facts: weights of its progress."""

from __future__ import annotations

from typing import Final

from datalens_service.data.dataset import Schema
from datalens_service.phases import Phase
from datalens_service.planning import resources
from datalens_service.planning.expectations import measure_machine, read_table
from datalens_service.spec import TrainingSpec

_CALIBRATION: Final = 0.0018
"""Of the machine that the constants below were measured on, as of `measure_machine`."""
_DIMENSIONS: Final = 28 * 28
_SMALL: Final = 32 * 32
_DRAWN_IMAGE: Final = 1e-4
_CHOSEN_IMAGE: Final = {
    "shapes": 1.3e-3, "rejection": 2.5e-3, "diffusion": 2.5e-3, "rejection_or_diffusion": 2.5e-3, "guided": 3e-3,
    "labelled_moments": 6e-4,
}  # fmt: skip
"""Seconds per image of 28×28 pixels, of most methods, and of those that choose among proposals or follow a path."""
_TRAINED_IMAGE: Final = 2.1e-4
"""Seconds of the standard CNN per image and pass."""
_STRONGER: Final = 6
_FIDELITY_SECONDS: Final = 10.0
_FILES_SECONDS: Final = 3.0


def expect_phases(spec: TrainingSpec, schema: Schema) -> dict[str, float]:
    """By the name of a phase; those that a job leaves out are missing."""
    slower = measure_machine() / _CALIBRATION
    training = resources.expect_seconds(spec, schema, read_table(), measure_machine())
    drawing = _expect_drawing(spec, schema) * slower
    phases = {Phase.TRAINING: training, Phase.FITTING: 0.01 * training, Phase.DRAWING: drawing}
    phases[Phase.PACKAGING] = _FILES_SECONDS * slower
    if spec.evaluation.enabled:
        phases[Phase.EVALUATING] = _expect_evaluation(spec, schema) * slower
        # The images are remembered.
        phases[Phase.REPORTING] = _FILES_SECONDS * slower
    return {phase.value: round(seconds, 1) for phase, seconds in phases.items()}


def _expect_drawing(spec: TrainingSpec, schema: Schema) -> float:
    if spec.method.result != "generator":
        return 0.0
    each = _CHOSEN_IMAGE.get(spec.method.name, _DRAWN_IMAGE)
    return each * spec.synthetic_images * schema.dimensions / _DIMENSIONS


def _expect_evaluation(spec: TrainingSpec, schema: Schema) -> float:
    """Of the training of classifiers on synthetic images, on those of simpler releases and on real ones."""
    if spec.method.result != "generator":
        return _FILES_SECONDS
    settings = spec.evaluation.bounded_for(schema)
    networks = 1 + settings.floors * 2 + settings.ceiling
    seen = settings.synthetic_images * settings.epochs * settings.repetitions * networks
    seen *= 1 + _STRONGER * settings.stronger_classifier
    pixels = min(schema.height * schema.width, _SMALL) / _DIMENSIONS
    return _TRAINED_IMAGE * seen * pixels + _FIDELITY_SECONDS * len(settings.fidelity)
