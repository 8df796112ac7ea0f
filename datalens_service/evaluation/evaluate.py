"""Measures a generator: accuracy of classifiers trained on its images, with floors and ceiling, and fidelity.

What reads private images here is not charged and goes to the owner alone; every measure says so. What the observer
hears (steps done, steps in all) depends on settings and public numbers only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from datalens_service.data.dataset import Dataset, Labels
from datalens_service.errors import WorkerUnavailable
from datalens_service.evaluation import classifiers, floors
from datalens_service.evaluation.bench import Bench, Observe, Progress, percent_on, private_percent
from datalens_service.evaluation.classifiers import Classifier
from datalens_service.evaluation.fidelity import fidelity
from datalens_service.evaluation.measures import EXTRACTOR_TITLES, ClassFigure, Measure, Unavailable
from datalens_service.evaluation.per_class import per_class
from datalens_service.evaluation.reference import Reference, fidelity_reference, test_reference
from datalens_service.evaluation.settings import EvaluationSettings
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
    """

    measures: tuple[Measure, ...] = ()
    per_class: tuple[ClassFigure, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()


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
    measures, lines = _utility(subject, settings, tested, progress) if tested else ([], [])
    found = list(_fidelities(subject, settings, compared, progress)) if compared else []
    return Evaluation(
        measures=(*measures, *(one for figures in found if isinstance(figures, list) for one in figures)),
        per_class=tuple(lines),
        unavailable=tuple(one for one in found if isinstance(one, Unavailable)),
    )


def _steps(subject: Subject, settings: EvaluationSettings, tested: Reference | None, compared: Reference | None) -> int:
    """Epochs of all classifiers, and one step for every extractor."""
    with_moments = settings.floors and subject.floor_generator is not None
    epochs = settings.epochs * (1 + with_moments)
    if settings.ceiling:
        epochs += _ceiling_epochs(settings, subject.dataset.schema.num_units)
    classifiers_trained = (1 + settings.stronger_classifier) * settings.seeds if tested else 0
    return classifiers_trained * epochs + (len(settings.fidelity) if compared else 0)


def _utility(
    subject: Subject, settings: EvaluationSettings, tested: Reference, progress: Progress
) -> tuple[list[Measure], list[ClassFigure]]:
    measures: list[Measure] = []
    lines: list[ClassFigure] = []
    for suffix in ("", "_resnet") if settings.stronger_classifier else ("",):
        bench = _bench(subject, settings, tested, _SUFFIXES[suffix], progress)
        found, table = _under_one_classifier(subject, bench, suffix)
        measures += found
        lines += table
    return measures, lines


def _bench(
    subject: Subject, settings: EvaluationSettings, tested: Reference, classifier: Classifier, progress: Progress
) -> Bench:
    return Bench(tested, subject.dataset.schema.num_classes, settings, classifier, subject.device, progress)


def _under_one_classifier(subject: Subject, bench: Bench, suffix: str) -> tuple[list[Measure], list[ClassFigure]]:
    """Accuracy, floors and ceiling, and the table of classes."""
    settings, schema = bench.settings, subject.dataset.schema
    own = _trained_on_samples(subject.generator, bench)
    protocol = bench.protocol(f"{settings.synthetic_images:,} synthetic images", settings.epochs)
    measures = [percent_on(bench.reference, f"accuracy{suffix}", bench.accuracies(own), protocol)]
    if settings.floors and not suffix:
        measures.append(_floor_averages(subject, bench))
    if settings.floors and subject.floor_generator is not None:
        values = bench.accuracies(_trained_on_samples(subject.floor_generator, bench))
        measures.append(private_percent(f"floor_moments{suffix}", values, protocol))
    real = None
    if settings.ceiling:
        train, epochs = subject.dataset.train, _ceiling_epochs(settings, schema.num_units)
        real = bench.predictions(lambda _seed: (train.images, train.labels), epochs)
        protocol = bench.protocol(f"{len(train):,} real training images", epochs)
        measures.append(private_percent(f"ceiling{suffix}", bench.accuracies(real), protocol))
    labels = bench.reference.split.labels
    return measures, per_class(_CLASSIFIER_NAMES[suffix], schema.class_names, labels, own, real)


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
        floors.class_average_accuracy(
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
    subject: Subject, settings: EvaluationSettings, reference: Reference, progress: Progress
) -> Iterator[list[Measure] | Unavailable]:
    """The figures of each extractor, or why there are none."""
    synthetic, _ = subject.generator.sample(settings.fidelity_images)
    for kind in settings.fidelity:
        try:
            yield fidelity(
                kind,
                synthetic,
                reference,
                subject.dataset.schema.num_classes,
                most_images=settings.fidelity_images,
                folder=subject.folder,
                inception_weights=subject.inception_weights,
                device=subject.device,
            )
        except WorkerUnavailable as error:
            yield Unavailable(figure=f"Fidelity, {EXTRACTOR_TITLES[kind]}", reason=error.detail)
        progress.step()
