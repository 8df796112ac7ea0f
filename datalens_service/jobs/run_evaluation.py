"""Measuring a released model: figures for the owner, and those that may be passed on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from datalens_service.base import logs
from datalens_service.base.audience import Private
from datalens_service.base.errors import (
    BudgetExceeded,
    InvalidSpec,
    JobStopped,
    LedgerCorrupt,
    NotFound,
    StaleLease,
    StateConflict,
    StoreUnavailable,
)
from datalens_service.base.progress import Phase
from datalens_service.base.settings import Settings
from datalens_service.data.dataset import Dataset, Upload
from datalens_service.evaluation import Measure, Unavailable
from datalens_service.evaluation.evaluate import (
    FAILED,
    NOTHING,
    Evaluation,
    evaluate,
    evaluate_classifier,
    predicting,
)
from datalens_service.evaluation.metrics import METRICS
from datalens_service.evaluation.metrics.context import EvaluatedModel
from datalens_service.evaluation.metrics.reference import find_caveats
from datalens_service.jobs.holdout import holdout_accuracy, open_holdout
from datalens_service.jobs.job_watch import ShutdownRequested
from datalens_service.methods import LabelledMoments, Moments, PooledMoments
from datalens_service.models.generators.generator import Generator
from datalens_service.models.released import ReleasedModel
from datalens_service.planning.presets import build_baseline
from datalens_service.privacy.budget import UnchargedAccount
from datalens_service.spec import TrainingSpec
from datalens_service.store.database import Database
from datalens_service.store.jobs.leases import Lease
from datalens_service.training import Observer, Result, run

PRIVATE_READS = ("baselines and figures of training images",)

log = structlog.get_logger()

_HOLDOUT_FIGURE = "Accuracy on a data set that was set aside"
_ALL_FIGURES = "Accuracy and fidelity"
_MOMENTS_TITLE = METRICS["floor_moments"].title

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class EvaluationContext:
    """The database and settings with which a job is measured.

    Attributes:
        database: Database of its account, and of the account of a data set that was set aside.
        settings: Folders of records, and of weights of the operator.
    """

    database: Database
    settings: Settings
    lease: Lease
    folder: Path
    device: str


def measure(
    result: Result, spec: TrainingSpec, dataset: Dataset, context: EvaluationContext, observe: Observer
) -> Evaluation:
    """Figures for the report; one that fails is named there, and leaves the others as they are.

    The model is paid for by now: an error while measuring it must not lose it.

    Raises:
        JobStopped: From `observe`, as whatever else it raises.
    """
    observe(Phase.EVALUATING, 0, 1)
    holdout = _attempted(_HOLDOUT_FIGURE, lambda: _holdout(spec, context))
    aside = holdout if isinstance(holdout, Upload) else None
    evaluation = _measured(result, spec, dataset, aside, context, observe)
    evaluation = evaluation.with_caveats(Private(find_caveats(dataset, aside)))
    if aside is not None:
        return evaluation.with_outcome(_counted(result.model, spec, aside, context))
    return evaluation.with_outcome(holdout) if isinstance(holdout, Unavailable) else evaluation


def _measured(
    result: Result,
    spec: TrainingSpec,
    dataset: Dataset,
    holdout: Upload | None,
    context: EvaluationContext,
    observe: Observer,
) -> Evaluation:
    model, observe_share = result.model, partial(observe, Phase.EVALUATING)
    if not isinstance(model, Generator):
        labels = "predictions" in model.evaluations
        return evaluate_classifier(predicting(model), dataset, spec.evaluation, observe_share) if labels else NOTHING
    moments = _attempted(_MOMENTS_TITLE, lambda: _moments_generator(spec, dataset)) if spec.evaluation.floors else None
    subject = EvaluatedModel(
        generator=model,
        dataset=dataset,
        epsilon=spec.epsilon,
        delta=result.cost.delta,
        device=context.device,
        folder=context.folder,
        moments_generator=moments if isinstance(moments, Generator) else None,
        holdout=holdout,
        inception_weights=context.settings.inception_weights,
    )
    evaluation = _attempted(_ALL_FIGURES, lambda: evaluate(subject, spec.evaluation, observe_share))
    if isinstance(evaluation, Unavailable):
        evaluation = NOTHING.with_outcome(evaluation)
    return evaluation.with_outcome(moments) if isinstance(moments, Unavailable) else evaluation


def _holdout(spec: TrainingSpec, context: EvaluationContext) -> Upload | None:
    aside = spec.evaluation.holdout
    if aside is None:
        return None
    return open_holdout(context.database, context.settings, context.lease.job_id, aside, context.folder)


def _counted(
    model: ReleasedModel, spec: TrainingSpec, holdout: Upload, context: EvaluationContext
) -> Measure | Unavailable:
    def count() -> Measure:
        settings = spec.evaluation.bounded_for(model.schema)
        return holdout_accuracy(context.database, context.lease, model, holdout, settings, context.device)

    return _attempted(_HOLDOUT_FIGURE, count)


def _attempted(figure: str, compute: Callable[[], Outcome]) -> Outcome | Unavailable:
    """A figure, or why there is none; what is asked of the job, and faults of its books, go on to the caller."""
    try:
        return compute()
    except (JobStopped, ShutdownRequested, StaleLease, StoreUnavailable, LedgerCorrupt):
        raise
    except (BudgetExceeded, NotFound, StateConflict, InvalidSpec) as error:
        return Unavailable(figure=figure, reason=error.detail)
    except Exception as error:  # noqa: BLE001 (see `measure`)
        log.error("a figure failed", figure=figure, **logs.outline(error))
        return Unavailable(figure=figure, reason=FAILED)


def _moments_generator(spec: TrainingSpec, dataset: Dataset) -> Generator | None:
    """Moments at the same budget, for comparison: it never leaves the job, so it is not charged.

    None for a job that is made of moments itself, and where the method cannot be used. Pooled moments are chosen where
    a covariance for each class is noise, and class averages are the better baseline.
    """
    if isinstance(spec.method, Moments | PooledMoments | LabelledMoments):
        return None
    try:
        method = build_baseline(dataset.schema)
        asked = spec.model_copy(update={"method": method})
        return run(asked, dataset, account=UnchargedAccount()).generator
    except InvalidSpec:
        return None
