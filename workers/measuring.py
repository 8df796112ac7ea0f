"""Measuring a generator on the owner's test split. Every result is for the owner alone."""

from __future__ import annotations

import structlog

from datalens_service import logs
from datalens_service.data.dataset import Dataset
from datalens_service.errors import InvalidSpec, JobStopped, StaleLease, StoreUnavailable
from datalens_service.evaluation import Measure
from datalens_service.evaluation.evaluate import evaluate
from datalens_service.methods import Moments
from datalens_service.models.generator import Generator
from datalens_service.run import Observer, Result, run
from datalens_service.spec import TrainingSpec
from workers.observer import ShutdownRequested

log = structlog.get_logger()

PHASE = "evaluating"


def measure(result: Result, spec: TrainingSpec, dataset: Dataset, device: str, observe: Observer) -> list[Measure]:
    """Measures for the owner's report; none without a test split, or if measuring failed.

    The generator is paid for by now: an error while measuring it must not lose it.

    Raises:
        JobStopped: From `observe`, as whatever else it raises.
    """
    observe(PHASE, 0, 1)
    if dataset.test is None or not spec.evaluation.enabled:
        return []
    try:
        return _measured(result, spec, dataset, device, observe)
    except (JobStopped, ShutdownRequested, StaleLease, StoreUnavailable):
        raise
    except Exception as error:  # noqa: BLE001 (see above)
        log.error("measuring failed, the report has no measures", **logs.outline(error))
        return []


def _measured(result: Result, spec: TrainingSpec, dataset: Dataset, device: str, observe: Observer) -> list[Measure]:
    return evaluate(
        result.generator,
        dataset,
        settings=spec.evaluation,
        epsilon=spec.epsilon,
        delta=result.cost.delta,
        device=device,
        observe=lambda _, value, maximum: observe(PHASE, value, maximum),
        floor_generator=_floor_generator(spec, dataset) if spec.evaluation.floors else None,
    )


def _floor_generator(spec: TrainingSpec, dataset: Dataset) -> Generator | None:
    """Moments at the same budget, for comparison: it never leaves the job, so it is not charged.

    None for a job that is made of moments itself, and where the method cannot be used.
    """
    if isinstance(spec.method, Moments):
        return None
    try:
        return run(spec.model_copy(update={"method": Moments()}), dataset).generator
    except InvalidSpec:
        return None
