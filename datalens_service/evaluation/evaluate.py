"""Measures a generator by the metrics that the settings ask for, and a released classifier on the owner's test images.

Figures that read private images here are not charged and go to the owner alone; what a metric reads decides that. The
observer's numbers (steps done, steps in all) depend on settings and public numbers only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar, runtime_checkable

import numpy as np
import structlog
from numpy.typing import NDArray

from datalens_service.base import logs
from datalens_service.base.audience import Private
from datalens_service.base.errors import InvalidSpec, PersonsInBothSplits, WorkerUnavailable
from datalens_service.data.dataset import Dataset, Images, Labels
from datalens_service.evaluation.measures import (
    ClassFigure,
    ConfusionTable,
    Measure,
    Measurements,
    Unavailable,
    measured,
)
from datalens_service.evaluation.metrics import METRICS
from datalens_service.evaluation.metrics.accuracy import REAL, SYNTHETIC
from datalens_service.evaluation.metrics.classifier_benchmark import Observe, StepCounter
from datalens_service.evaluation.metrics.classifiers import CLASSIFIERS
from datalens_service.evaluation.metrics.context import Context, EvaluatedModel, Sources
from datalens_service.evaluation.metrics.metric import Metric
from datalens_service.evaluation.metrics.outcome import MetricResult, Standing
from datalens_service.evaluation.metrics.reference import Reference, test_reference
from datalens_service.evaluation.metrics.released_classifier import ACCURACY
from datalens_service.evaluation.settings import EvaluationSettings

FAILED: Final = "It could not be computed. The log of the worker says where in the program it failed."

Figure = TypeVar("Figure")
_log = structlog.get_logger()


def attempt_figure(figure: str, compute: Callable[[], Figure], progress: StepCounter) -> Figure | Unavailable:
    """Return a figure, or the fact that it could not be computed.

    The message of an unforeseen error may quote private values: neither the report nor the log repeats it.

    Args:
        figure: For the report; no function of the records.
        compute: May raise anything.
        progress: An error of its observer goes on to the caller.
    """
    try:
        return compute()
    except (WorkerUnavailable, PersonsInBothSplits) as error:
        return Unavailable(figure=figure, reason=error.detail)
    except Exception as error:
        if error is progress.interruption:
            raise
        _log.error("a figure failed", figure=figure, **logs.outline(error))
        return Unavailable(figure=figure, reason=FAILED)


PRIVATE_READS = ("figures on test images",)


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation.

    Attributes:
        measures: Measures that anybody may see.
        measured: Everything, for the owner.
    """

    measures: tuple[Measure, ...]
    measured: Private[Measurements]

    @classmethod
    def from_measurements(cls, found: Measurements) -> Evaluation:
        """Split measurements by audience: what a metric reads decided who may see its figure."""
        return cls(tuple(measure for measure in found.measures if measure.releasable), Private(found))

    def with_outcome(self, outcome: Measure | Unavailable) -> Evaluation:
        """Add one figure, or the reason why it could not be computed."""
        found = self.measured.for_owner()
        added = {"measures": (*found.measures, outcome)}
        if isinstance(outcome, Unavailable):
            added = {"unavailable": (*found.unavailable, outcome)}
        return self.from_measurements(found.model_copy(update=added))

    def with_caveats(self, caveats: Private[tuple[str, ...]]) -> Evaluation:
        """Add caveats for the owner about persons in the images that were measured on."""
        return self.from_measurements(
            self.measured.for_owner().model_copy(update={"person_caveats": caveats.for_owner()})
        )


NOTHING: Final = Evaluation.from_measurements(Measurements())
PENDING: Final = NOTHING.with_outcome(
    Unavailable(
        figure="All figures",
        reason="The evaluation had not ended when this report was written. If the job has ended, its evaluation "
        "was cancelled or broke off: the images are complete all the same.",
    )
)
"""The evaluation of a job whose images are ready and whose evaluation goes on."""


def evaluate(subject: EvaluatedModel, settings: EvaluationSettings, observe: Observe) -> Evaluation:
    """Measure what settings and data set allow; `observe`, called with steps done and in all, may raise to stop."""
    if not settings.enabled:
        return NOTHING
    sources = Sources.from_job(subject, settings.bounded_for(subject.dataset.schema))
    facts = sources.facts()
    asked = [metric for metric in METRICS.values() if metric.asked(facts)]
    progress = StepCounter(observe, sum(metric.steps(facts) for metric in asked))
    walk, planned = _Walk(sources, progress), 0
    for metric in asked:
        planned += metric.steps(facts)
        walk.compute(metric)
        progress.reach(planned)
    return Evaluation.from_measurements(
        Measurements(
            measures=tuple(walk.measures),
            per_class=tuple(_class_figures(sources, progress)),
            unavailable=tuple(walk.unavailable.values()),
        )
    )


@dataclass
class _Walk:
    """The figures so far, and by title those that could not be computed."""

    sources: Sources
    progress: StepCounter
    measures: list[Measure] = field(default_factory=list)
    unavailable: dict[str, Unavailable] = field(default_factory=dict)
    failed: set[tuple[str, Standing]] = field(default_factory=set)

    def compute(self, metric: Metric) -> None:
        """Compute one metric; others of its group that rest on the same images fail with it."""
        title, standing = metric.group or metric.title, self.sources.standing(metric.reads)
        if metric.compute is None or (title, standing) in self.failed:
            return
        compute, context = metric.compute, Context(self.sources, metric.reads, self.progress)
        outcome = attempt_figure(title, lambda: compute(context), self.progress)
        if isinstance(outcome, MetricResult):
            self.measures.append(measured(metric, outcome, standing))
        else:
            self.unavailable.setdefault(title, outcome)
            self.failed.add((title, standing))


def _class_figures(sources: Sources, progress: StepCounter) -> list[ClassFigure]:
    """List the figures of each class under each classifier that was trained; for the owner."""
    if sources.test is None:
        return []
    names, labels = sources.subject.dataset.schema.class_names, sources.test.split.labels
    on_test, on_training = Context(sources, "test", progress), Context(sources, "training", progress)
    lines: list[ClassFigure] = []
    for classifier in CLASSIFIERS:
        if (synthetic := on_test.recall((SYNTHETIC, classifier))) is not None:
            lines += per_class(classifier.title, names, labels, synthetic, on_training.recall((REAL, classifier)))
    return lines


def per_class(
    classifier: str,
    class_names: Sequence[str],
    labels: Labels,
    synthetic: Sequence[Labels],
    real: Sequence[Labels] | None,
) -> list[ClassFigure]:
    """Return one line per class, for the owner: counts and accuracies of a class are private.

    Args:
        labels: (m,) true labels of the test images.
        synthetic: Labels given after training on synthetic images, per seed.
        real: The same after training on real images, or None.
    """
    return [
        ClassFigure(
            classifier=classifier,
            class_name=name,
            test_images=int(np.count_nonzero(labels == index)),
            accuracy=_right(synthetic, labels, index),
            ceiling=None if real is None else _right(real, labels, index),
            taken_for=_mistaken(synthetic, labels, index, class_names),
        )
        for index, name in enumerate(class_names)
    ]


def _right(predictions: Sequence[Labels], labels: Labels, index: int) -> float | None:
    """Return the percentage of the class's images that got its label, over all seeds."""
    members = labels == index
    if not members.any():
        return None
    return 100 * float(np.mean([predicted[members] == index for predicted in predictions]))


def _mistaken(predictions: Sequence[Labels], labels: Labels, index: int, names: Sequence[str]) -> str | None:
    """Return the other class that its images get most often; None if they never do."""
    given = np.concatenate([predicted[labels == index] for predicted in predictions])
    counts = np.bincount(given, minlength=len(names))
    counts[index] = 0
    return names[int(counts.argmax())] if counts.any() else None


PROTOCOL: Final = "labels of highest probability given by the released classifier"


@runtime_checkable
class Predicts(Protocol):
    """A model that predicts classes, as an evaluation needs it."""

    def predict(self, images: Images) -> NDArray[np.float32]:
        """Return probabilities (n, classes) of uint8 images (n, height, width, channels)."""


def predicting(model: object) -> Predicts:
    """Return a released model as one that predicts.

    Raises:
        InvalidSpec: The model does not predict.
    """
    if not isinstance(model, Predicts):
        raise InvalidSpec("This model predicts no classes, so its accuracy cannot be measured.")
    return model


def evaluate_classifier(
    classifier: Predicts, dataset: Dataset, settings: EvaluationSettings, observe: Observe
) -> Evaluation:
    """Measure what the data set allows; without a test split, nothing."""
    tested = test_reference(dataset)
    if tested is None or not settings.enabled:
        return NOTHING
    progress = StepCounter(observe, 1)
    names = dataset.schema.class_names
    outcome = attempt_figure(ACCURACY.title, lambda: _tested(classifier, tested, names), progress)
    progress.step()
    if isinstance(outcome, Unavailable):
        return NOTHING.with_outcome(outcome)
    measure, table = outcome
    return Evaluation.from_measurements(Measurements(measures=(measure,), confusion=table))


def _tested(classifier: Predicts, tested: Reference, names: tuple[str, ...]) -> tuple[Measure, ConfusionTable]:
    if not len(tested.split.labels):
        raise PersonsInBothSplits("All test images are of persons who have training images.")
    labels = tested.split.labels
    predicted = classifier.predict(tested.split.images).argmax(axis=1)
    accuracy = 100 * float(np.mean(predicted == labels))
    outcome = MetricResult((accuracy,), f"{PROTOCOL}; tested on {tested.name}")
    measure = measured(ACCURACY, outcome, Standing(tested.audience, tested.status))
    return measure, confusion_table(labels, predicted, names, tested.name)


MOST_CLASSES: Final = 100
"""A larger table would help nobody."""


def confusion_table(labels: Labels, predicted: Labels, class_names: Sequence[str], reference: str) -> ConfusionTable:
    """Count the test images of each class by the class they were given: private as they are, for the owner alone.

    Args:
        labels: (m,) true labels.
        predicted: (m,) labels that were given.
        class_names: Declared classes; only the first 100 are counted.
        reference: Name of the images, for the reader.
    """
    classes = min(len(class_names), MOST_CLASSES)
    counts = np.zeros((classes, classes), dtype=np.int64)
    inside = (labels < classes) & (predicted < classes)
    np.add.at(counts, (labels[inside], predicted[inside]), 1)
    return ConfusionTable(
        class_names=tuple(class_names[:classes]),
        counts=tuple(tuple(int(count) for count in row) for row in counts),
        reference=reference,
    )
