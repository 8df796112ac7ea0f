"""Measuring a generator: figures for the owner, and those that may be passed on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from datalens_service import logs
from datalens_service.data.dataset import Dataset
from datalens_service.errors import (
    BudgetExceeded,
    InvalidSpec,
    JobStopped,
    LedgerCorrupt,
    NotFound,
    StaleLease,
    StateConflict,
    StoreUnavailable,
)
from datalens_service.evaluation import Measure, Unavailable
from datalens_service.evaluation.evaluate import Evaluation, Subject, evaluate
from datalens_service.methods import Moments
from datalens_service.models.generators.generator import Generator
from datalens_service.run import Observer, Result, run
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.leases import Lease
from workers.holdout import holdout_accuracy, open_holdout
from workers.observer import ShutdownRequested

log = structlog.get_logger()

PHASE = "evaluating"

_HOLDOUT_FIGURE = "Accuracy on a data set that was set aside"


@dataclass(frozen=True)
class Workplace:
    """Where a job is measured.

    Attributes:
        database: Of its account, and of the account of a data set that was set aside.
        lease: Of the job.
        folder: Private; for files in the making.
        device: Where networks are trained.
        inception_weights: The operator's file, or None.
    """

    database: Database
    lease: Lease
    folder: Path
    device: str
    inception_weights: Path | None


def measure(result: Result, spec: TrainingSpec, dataset: Dataset, place: Workplace, observe: Observer) -> Evaluation:
    """Figures for the report; none if measuring failed.

    The generator is paid for by now: an error while measuring it must not lose it.

    Raises:
        JobStopped: From `observe`, as whatever else it raises.
    """
    observe(PHASE, 0, 1)
    if not spec.evaluation.enabled:
        return Evaluation()
    try:
        return _measured(result, spec, dataset, place, observe)
    except (JobStopped, ShutdownRequested, StaleLease, StoreUnavailable, LedgerCorrupt):
        raise
    except Exception as error:  # noqa: BLE001 (see above)
        log.error("measuring failed, the report has no measures", **logs.outline(error))
        return Evaluation()


def _measured(result: Result, spec: TrainingSpec, dataset: Dataset, place: Workplace, observe: Observer) -> Evaluation:
    try:
        holdout = _holdout(spec, place)
        missing = []
    except (NotFound, StateConflict, InvalidSpec) as error:
        holdout, missing = None, [Unavailable(figure=_HOLDOUT_FIGURE, reason=error.detail)]
    subject = Subject(
        generator=result.generator,
        dataset=dataset,
        epsilon=spec.epsilon,
        delta=result.cost.delta,
        device=place.device,
        folder=place.folder,
        floor_generator=_floor_generator(spec, dataset) if spec.evaluation.floors else None,
        holdout=holdout,
        inception_weights=place.inception_weights,
    )
    found = evaluate(subject, spec.evaluation, lambda _, value, maximum: observe(PHASE, value, maximum))
    counted = [] if holdout is None else list(_counted(result.generator, spec, holdout, place))
    return replace(
        found,
        measures=(*found.measures, *(one for one in counted if isinstance(one, Measure))),
        unavailable=(*found.unavailable, *missing, *(one for one in counted if isinstance(one, Unavailable))),
    )


def _holdout(spec: TrainingSpec, place: Workplace) -> Dataset | None:
    wanted = spec.evaluation.holdout
    return None if wanted is None else open_holdout(place.database, place.lease.job_id, wanted)


def _counted(
    generator: Generator, spec: TrainingSpec, holdout: Dataset, place: Workplace
) -> Iterator[Measure | Unavailable]:
    try:
        yield holdout_accuracy(place.database, place.lease, generator, holdout, spec.evaluation, place.device)
    except (BudgetExceeded, NotFound, StateConflict) as error:
        yield Unavailable(figure=_HOLDOUT_FIGURE, reason=error.detail)


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
