"""Accuracy of a classifier that saw synthetic images only, beside simpler releases and the real images.

All are tested on the same images under the same protocol; only the training images differ.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from datalens_service.data.dataset import Images, Labels
from datalens_service.evaluation.metrics.classifier_benchmark import STEPS_OF_A_PASS, ClassifierBenchmark
from datalens_service.evaluation.metrics.classifiers import RESIDUAL, STANDARD, ClassifierArchitecture
from datalens_service.evaluation.metrics.context import Context
from datalens_service.evaluation.metrics.downstream import Targets
from datalens_service.evaluation.metrics.metric import Metric
from datalens_service.evaluation.metrics.outcome import MetricResult, PublicFacts, Reads
from datalens_service.evaluation.metrics.reference import drawn_from
from datalens_service.evaluation.settings import EvaluationSettings
from datalens_service.models.generators.generator import Generator

SYNTHETIC: Final = "labels after training on synthetic images"
REAL: Final = "labels after training on real images"


def _accuracy(context: Context, classifier: ClassifierArchitecture) -> MetricResult:
    benchmark = context.benchmark(classifier)
    labels = context.once((SYNTHETIC, classifier), lambda: _trained_on_samples(context.generator, benchmark))
    return _outcome(benchmark, labels, _drawn(benchmark, context.generator), benchmark.settings.epochs)


def _moments(context: Context, classifier: ClassifierArchitecture) -> MetricResult:
    benchmark = context.benchmark(classifier)
    labels = _trained_on_samples(context.moments_generator, benchmark)
    return _outcome(benchmark, labels, _drawn(benchmark, context.moments_generator), benchmark.settings.epochs)


def _upper_bound(context: Context, classifier: ClassifierArchitecture) -> MetricResult:
    benchmark, train = context.benchmark(classifier), context.training_images
    drawn = drawn_from(train, context.settings.synthetic_images)
    epochs = _epochs_on_real_images(context.settings, context.schema.num_units)
    labels = context.once(
        (REAL, classifier), lambda: benchmark.predictions(lambda _seed: (drawn.images, drawn.labels), epochs)
    )
    used, there = drawn.count.for_owner(), train.count.for_owner()
    of_all = f"{used:,} of {there:,}" if used < there else f"{there:,}"
    return _outcome(benchmark, labels, f"{of_all} real training images", epochs)


def _outcome(benchmark: ClassifierBenchmark, labels: list[Labels], training_set: str, epochs: int) -> MetricResult:
    return MetricResult(tuple(benchmark.accuracies(labels)), benchmark.protocol(training_set, epochs))


def _drawn(benchmark: ClassifierBenchmark, generator: Generator) -> str:
    kind = "public images with soft labels" if generator.verbatim else "synthetic images"
    return f"{benchmark.settings.synthetic_images:,} {kind}"


def _trained_on_samples(generator: Generator, benchmark: ClassifierBenchmark) -> list[Labels]:
    """Return labels by a classifier that saw images of `generator`; every seed draws its own."""
    count, progress = benchmark.settings.synthetic_images, benchmark.progress

    def draw(seed: int) -> tuple[Images, Targets]:
        return generator.draw_training_set(count, seed=seed, observe=lambda _drawn, _count: progress.pulse())

    return benchmark.predictions(draw, benchmark.settings.epochs)


def _epochs_on_real_images(settings: EvaluationSettings, num_units: int) -> int:
    """Pass over a small real set more often, so that it gets no fewer steps than the synthetic one.

    The number of units is public; the number of records may not be.
    """
    return max(settings.epochs, -(-settings.epochs * settings.synthetic_images // num_units))


def _uses(classifier: ClassifierArchitecture, facts: PublicFacts) -> bool:
    return facts.has_test and (classifier is STANDARD or facts.settings.stronger_classifier)


def _uses_moments(classifier: ClassifierArchitecture, facts: PublicFacts) -> bool:
    return _uses(classifier, facts) and facts.settings.floors and facts.has_moments


def _uses_real_images(classifier: ClassifierArchitecture, facts: PublicFacts) -> bool:
    return _uses(classifier, facts) and facts.settings.ceiling


def _steps(facts: PublicFacts) -> int:
    """Return the steps of progress: fewer real images are passed over more often, so both sets take the same work."""
    return STEPS_OF_A_PASS * facts.settings.repetitions * facts.settings.epochs


class _Training(NamedTuple):
    """The images that a classifier is trained on, and the metric of the result."""

    family: str
    reads: Reads
    compute: Callable[..., MetricResult]
    applies: Callable[[ClassifierArchitecture, PublicFacts], bool]

    def metric(self, classifier: ClassifierArchitecture, title: str, meaning: str) -> Metric:
        return Metric(
            name=f"{self.family}{classifier.suffix}",
            title=title,
            meaning=meaning,
            unit="percent",
            better="higher",
            reads=self.reads,
            compute=partial(self.compute, classifier=classifier),
            applies=partial(self.applies, classifier),
            steps=_steps,
            family=self.family,
            variant=classifier.title,
        )


_SAMPLES: Final = _Training("accuracy", "test", _accuracy, _uses)
_NOISY_MOMENTS: Final = _Training("floor_moments", "training", _moments, _uses_moments)
_REAL_IMAGES: Final = _Training("ceiling", "training", _upper_bound, _uses_real_images)

ACCURACY: Final = _SAMPLES.metric(
    STANDARD,
    "Trained on the synthetic images",
    "Share of real test images that a classifier labels correctly when it has seen synthetic images only.",
)
MOMENTS: Final = _NOISY_MOMENTS.metric(
    STANDARD,
    "Baseline: noisy moments, no votes",
    "What images from noisy class means and covariances alone reach at the same ε and δ.",
)
UPPER_BOUND: Final = _REAL_IMAGES.metric(
    STANDARD,
    "Trained on the real images",
    "What the same classifier reaches when it may see the real training images.",
)
RESIDUAL_METRICS: Final = (
    _SAMPLES.metric(
        RESIDUAL,
        "Stronger classifier, synthetic images",
        "The same share for a small residual network that has seen synthetic images only.",
    ),
    _NOISY_MOMENTS.metric(
        RESIDUAL,
        "Stronger classifier, moments baseline",
        "What the residual network reaches on images from noisy moments alone.",
    ),
    _REAL_IMAGES.metric(
        RESIDUAL,
        "Stronger classifier, real images",
        "What the residual network reaches when it may see the real training images.",
    ),
)
