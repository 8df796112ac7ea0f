"""Measures a generator: accuracy of classifiers trained on its images, with floors and ceiling, and fidelity.

What reads private images here is not charged and goes to the owner alone; every measure says so. What the observer
hears (steps done, steps in all) depends on settings and public numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from datalens_service.data.dataset import Dataset, Labels, Split
from datalens_service.evaluation.attempts import attempted
from datalens_service.evaluation.measures import (
    EXTRACTOR_TITLES,
    METRICS,
    ClassFigure,
    ConfusionTable,
    Measure,
    Unavailable,
)
from datalens_service.evaluation.metrics import baselines, classifiers
from datalens_service.evaluation.metrics.classifier_benchmark import (
    Bench,
    Observe,
    Progress,
    percent_on,
    private_percent,
)
from datalens_service.evaluation.metrics.classifiers import Classifier
from datalens_service.evaluation.metrics.fidelity import fidelity, score_alone
from datalens_service.evaluation.metrics.per_class import per_class
from datalens_service.evaluation.metrics.reference import Reference, fidelity_reference, test_reference
from datalens_service.evaluation.settings import EvaluationSettings, ExtractorKind
from datalens_service.models.generators.generator import Generator

_SUFFIXES = {"": classifiers.A, "_resnet": classifiers.RESIDUAL}
_CLASSIFIER_NAMES = {"": "classifier A", "_resnet": "residual network"}


@dataclass(frozen=True)
class Subject:
    """What is measured, and what it is measured with.

    Attributes:
        generator: What the job released.
        dataset: Its private data set.
        epsilon: Of the job, for floor A (zero-out).
        delta: Of the job.
        device: Where networks are trained.
        folder: Private; for files in the making.
        floor_generator: A moments generator at the same budget, for floor B; None leaves floor B out.
        holdout: A data set that was set aside, or None.
        inception_weights: The operator's file, or None.
    """

    generator: Generator
    dataset: Dataset
    epsilon: float
    delta: float
    device: str
    folder: Path
    floor_generator: Generator | None = None
    holdout: Dataset | None = None
    inception_weights: Path | None = None


@dataclass(frozen=True)
class Evaluation:
    """What was measured.

    Attributes:
        measures: Figures.
        per_class: How each class fares; for the owner.
        unavailable: What was asked for and could not be had; for the owner.
        confusion: Of a classifier; for the owner.
    """

    measures: tuple[Measure, ...] = ()
    per_class: tuple[ClassFigure, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    confusion: ConfusionTable | None = None


PENDING: Final = Evaluation(
    unavailable=(
        Unavailable(
            figure="All figures",
            reason="The evaluation had not ended when this report was written. If the job has ended, its evaluation "
            "was cancelled or broke off: the images are complete all the same.",
        ),
    )
)
"""Of a job whose images are ready and whose evaluation goes on."""


def evaluate(subject: Subject, settings: EvaluationSettings, observe: Observe) -> Evaluation:
    """Measure what the settings ask for and the data set allows.

    Args:
        subject: What is measured.
        settings: How.
        observe: Called with (phase, steps done, steps in all); it may raise to stop.
    """
    if not settings.enabled:
        return Evaluation()
    tested = test_reference(subject.dataset)
    compared = fidelity_reference(subject.dataset, subject.holdout, settings) if settings.fidelity else None
    progress = Progress(observe, _steps(subject, settings, tested, compared))
    collected = _Collected()
    if tested is not None:
        _utility(subject, settings, tested, progress, collected)
    if compared is not None:
        _fidelities(subject, settings, compared, progress, collected)
    return Evaluation(tuple(collected.measures), tuple(collected.per_class), tuple(collected.unavailable))


@dataclass
class _Collected:
    """What was measured so far, and what could not be."""

    measures: list[Measure] = field(default_factory=list)
    per_class: list[ClassFigure] = field(default_factory=list)
    unavailable: list[Unavailable] = field(default_factory=list)

    def add(self, outcome: list[Measure] | Unavailable) -> None:
        """Measures of one attempt, or why there are none."""
        if isinstance(outcome, Unavailable):
            self.unavailable.append(outcome)
        else:
            self.measures += outcome


def _steps(subject: Subject, settings: EvaluationSettings, tested: Reference | None, compared: Reference | None) -> int:
    """Epochs of all classifiers, and one step for every extractor."""
    with_moments = settings.floors and subject.floor_generator is not None
    epochs = settings.epochs * (1 + with_moments)
    if settings.ceiling:
        epochs += _ceiling_epochs(settings, subject.dataset.schema.num_units)
    classifiers_trained = (1 + settings.stronger_classifier) * settings.seeds if tested else 0
    return classifiers_trained * epochs + (len(settings.fidelity) if compared else 0)


def _utility(
    subject: Subject, settings: EvaluationSettings, tested: Reference, progress: Progress, collected: _Collected
) -> None:
    for suffix in ("", "_resnet") if settings.stronger_classifier else ("",):
        bench = _bench(subject, settings, tested, _SUFFIXES[suffix], progress)
        _under_one_classifier(subject, bench, suffix, collected)


def _bench(
    subject: Subject, settings: EvaluationSettings, tested: Reference, classifier: Classifier, progress: Progress
) -> Bench:
    return Bench(tested, subject.dataset.schema.num_classes, settings, classifier, subject.device, progress)


def _under_one_classifier(subject: Subject, bench: Bench, suffix: str, collected: _Collected) -> None:
    """Accuracy, floors and ceiling, and the table of classes; each is attempted for itself."""
    settings, drawn = bench.settings, f"{bench.settings.synthetic_images:,} synthetic images"
    accuracy, floor, ceiling = f"accuracy{suffix}", f"floor_moments{suffix}", f"ceiling{suffix}"
    protocol = bench.protocol(drawn, settings.epochs)
    own = attempted(METRICS[accuracy].title, lambda: _trained_on_samples(subject.generator, bench), bench.progress)
    if isinstance(own, Unavailable):
        collected.add(own)
    else:
        collected.add([percent_on(bench.reference, accuracy, bench.accuracies(own), protocol)])
    if settings.floors and not suffix:
        title = METRICS["floor_averages"].title
        collected.add(attempted(title, lambda: [_floor_averages(subject, bench)], bench.progress))
    if settings.floors and subject.floor_generator is not None:
        moments = subject.floor_generator
        collected.add(
            attempted(METRICS[floor].title, lambda: [_floor_moments(moments, bench, floor, protocol)], bench.progress)
        )
    real = _ceiling(subject, bench, ceiling, collected) if settings.ceiling else None
    if not isinstance(own, Unavailable):
        names, labels = subject.dataset.schema.class_names, bench.reference.split.labels
        collected.per_class += per_class(_CLASSIFIER_NAMES[suffix], names, labels, own, real)


def _floor_moments(generator: Generator, bench: Bench, name: str, protocol: str) -> Measure:
    return private_percent(name, bench.accuracies(_trained_on_samples(generator, bench)), protocol)


def _ceiling(subject: Subject, bench: Bench, name: str, collected: _Collected) -> list[Labels] | None:
    """Labels after training on the real images; None if that failed."""
    train, epochs = subject.dataset.train, _ceiling_epochs(bench.settings, subject.dataset.schema.num_units)
    real = attempted(METRICS[name].title, lambda: _ceiling_predictions(train, bench, epochs), bench.progress)
    if isinstance(real, Unavailable):
        collected.add(real)
        return None
    protocol = bench.protocol(f"{len(train):,} real training images", epochs)
    collected.add([private_percent(name, bench.accuracies(real), protocol)])
    return real


def _ceiling_predictions(train: Split, bench: Bench, epochs: int) -> list[Labels]:
    return bench.predictions(lambda _seed: (train.images, train.labels), epochs)


def _trained_on_samples(generator: Generator, bench: Bench) -> list[Labels]:
    """Labels by a classifier that saw images of `generator`; every seed draws its own."""
    count = bench.settings.synthetic_images
    return bench.predictions(lambda seed: generator.sample(count, seed=seed), bench.settings.epochs)


def _ceiling_epochs(settings: EvaluationSettings, num_units: int) -> int:
    """A small real set is passed over more often, so that it gets no fewer steps than the synthetic one.

    The number of units is public; the number of records may not be.
    """
    return max(settings.epochs, -(-settings.epochs * settings.synthetic_images // num_units))


def _floor_averages(subject: Subject, bench: Bench) -> Measure:
    """Nearest noisy class average; every seed draws its own noise."""
    values = [
        baselines.class_average_accuracy(
            subject.dataset.train,
            bench.reference.split,
            bench.num_classes,
            epsilon=subject.epsilon,
            delta=subject.delta,
            seed=seed,
            records_per_unit=subject.dataset.schema.records_per_unit,
        )
        for seed in range(bench.settings.seeds)
    ]
    protocol = (
        f"nearest of {bench.num_classes} class averages, released once by a Gaussian mechanism with "
        f"ε = {subject.epsilon:g} at δ = {subject.delta:g} (zero-out), computed for comparison and not charged; "
        f"tested on {bench.reference.name}"
    )
    return private_percent("floor_averages", values, protocol)


def _fidelities(
    subject: Subject, settings: EvaluationSettings, reference: Reference, progress: Progress, collected: _Collected
) -> None:
    """The figures of each extractor, or why there are none."""
    for kind in settings.fidelity:
        figure = f"Fidelity, {EXTRACTOR_TITLES[kind]}"
        outcome = attempted(figure, partial(_fidelity, subject, settings, reference, kind), progress)
        collected.add(outcome)
        if isinstance(outcome, Unavailable) and kind == "inception" and reference.kind != "public":
            # Anybody may see the score: whether it is there must not depend on private images.
            score = attempted(figure, partial(_score, subject, settings, reference), progress)
            collected.measures += [] if isinstance(score, Unavailable) else score
        progress.step()


def _score(subject: Subject, settings: EvaluationSettings, reference: Reference) -> list[Measure]:
    synthetic, _ = subject.generator.sample(settings.fidelity_images)
    weights, device = subject.inception_weights, subject.device
    return score_alone(synthetic, reference, inception_weights=weights, device=device)


def _fidelity(
    subject: Subject, settings: EvaluationSettings, reference: Reference, kind: ExtractorKind
) -> list[Measure]:
    synthetic, _ = subject.generator.sample(settings.fidelity_images)
    return fidelity(
        kind,
        synthetic,
        reference,
        subject.dataset.schema.num_classes,
        most_images=settings.fidelity_images,
        folder=subject.folder,
        inception_weights=subject.inception_weights,
        device=subject.device,
    )
