"""Accuracy of classifiers that saw synthetic images only, beside simpler releases and the real images.

All are tested on the same images under the same protocol; only the training images differ.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from datalens_service.data.dataset import Labels
from datalens_service.evaluation.metrics.classifier_benchmark import STEPS_OF_A_TRAINING, ClassifierBenchmark
from datalens_service.evaluation.metrics.classifiers import LINEAR, STANDARD, JudgeClassifier
from datalens_service.evaluation.metrics.context import Context
from datalens_service.evaluation.metrics.discriminant import SIDE, label_by_pixels
from datalens_service.evaluation.metrics.metric import Metric
from datalens_service.evaluation.metrics.outcome import MetricResult, PublicFacts, Reads, Score
from datalens_service.evaluation.metrics.reference import drawn_from
from datalens_service.models.generators.generator import Generator

SYNTHETIC: Final = "labels after training on synthetic images"
REAL: Final = "labels after training on real images"
_LINEAR: Final = "labels by the linear discriminant of synthetic images"


def _accuracy(context: Context, classifier: JudgeClassifier) -> MetricResult:
    benchmark = context.benchmark(classifier)
    labels = context.once((SYNTHETIC, classifier), lambda: _learn(context, benchmark, context.generator))
    return benchmark.outcome(labels, _name_samples(benchmark, context.generator))


def _moments(context: Context, classifier: JudgeClassifier) -> MetricResult:
    benchmark = context.benchmark(classifier)
    labels = _learn(context, benchmark, context.moments_generator)
    return benchmark.outcome(labels, _name_samples(benchmark, context.moments_generator))


def _real(context: Context, classifier: JudgeClassifier) -> MetricResult:
    benchmark, train = context.benchmark(classifier), context.training_images
    drawn = drawn_from(train, context.settings.synthetic_images)
    labels = context.once((REAL, classifier), lambda: benchmark.predictions(lambda _seed: (drawn.images, drawn.labels)))
    used, there = drawn.count.for_owner(), train.count.for_owner()
    of_all = f"{used:,} of {there:,}" if used < there else f"{there:,}"
    return benchmark.outcome(labels, f"{of_all} real training images")


def _name_samples(benchmark: ClassifierBenchmark, generator: Generator) -> str:
    kind = "public images with soft labels" if generator.verbatim else "synthetic images"
    return f"{benchmark.settings.synthetic_images:,} {kind}"


def _learn(context: Context, benchmark: ClassifierBenchmark, generator: Generator) -> list[Labels]:
    """Labels by a classifier that saw images of `generator`; every seed draws its own.

    The discriminant of the same images is computed while they are there.
    """
    given: list[Labels] = []
    for seed in range(benchmark.settings.repetitions):
        images, labels = generator.draw_training_set(
            benchmark.settings.synthetic_images, seed=seed, observe=lambda _drawn, _count: benchmark.progress.pulse()
        )
        given.append(benchmark.label(images, labels, seed))
        if benchmark.classifier is STANDARD and generator is context.generator:
            classes, tested = context.schema.num_classes, context.test_images.split.images
            context.once((_LINEAR, seed), partial(label_by_pixels, images, labels, tested, classes))
    return given


def _discriminant(context: Context) -> MetricResult:
    tested, seeds = context.test_images, range(context.settings.repetitions)
    given = [context.recall((_LINEAR, seed)) for seed in seeds]
    drawn = _name_samples(context.benchmark(STANDARD), context.generator)
    protocol = f"linear discriminant of {drawn}, of at most {SIDE}×{SIDE} pixels; tested on {tested.name}"
    return MetricResult.from_scores([Score.from_labels(labels, tested.split.labels) for labels in given], protocol)


def _uses(classifier: JudgeClassifier, facts: PublicFacts) -> bool:
    return facts.has_test and (classifier is STANDARD or facts.settings.stronger_classifier)


def _uses_moments(classifier: JudgeClassifier, facts: PublicFacts) -> bool:
    return _uses(classifier, facts) and facts.settings.floors and facts.has_moments


def _uses_real_images(classifier: JudgeClassifier, facts: PublicFacts) -> bool:
    return _uses(classifier, facts) and facts.settings.ceiling


def _steps(facts: PublicFacts) -> int:
    """The share of progress that a baseline takes."""
    return STEPS_OF_A_TRAINING * facts.settings.repetitions


class _Training(NamedTuple):
    """The images that a classifier is trained on, and the metric of the result."""

    family: str
    reads: Reads
    compute: Callable[..., MetricResult]
    applies: Callable[[JudgeClassifier, PublicFacts], bool]

    def metric(self, classifier: JudgeClassifier, title: str, meaning: str) -> Metric:
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
_OF_REAL_IMAGES: Final = _Training("ceiling", "training", _real, _uses_real_images)

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
REAL_IMAGES: Final = _OF_REAL_IMAGES.metric(
    STANDARD, "Trained on the real images", "What the same classifier reaches when it may see the real training images."
)
DISCRIMINANT: Final = Metric(
    name="discriminant",
    title="Linear discriminant of the images",
    meaning="Share of real test images that the linear discriminant of the same synthetic images labels correctly. "
    "Where it is better than the classifier, the images hold more than a network learns from them.",
    unit="percent",
    better="higher",
    reads="test",
    compute=_discriminant,
    applies=partial(_uses, STANDARD),
    steps=lambda _facts: 0,
    group=ACCURACY.title,
)
FEATURE_METRICS: Final = (
    _SAMPLES.metric(
        LINEAR,
        "Features of ImageNet, synthetic images",
        "The same share for a linear model on features of a public network that has seen synthetic images only.",
    ),
    _NOISY_MOMENTS.metric(
        LINEAR,
        "Features of ImageNet, moments baseline",
        "What the linear model on features reaches on images from noisy moments alone.",
    ),
    _OF_REAL_IMAGES.metric(
        LINEAR,
        "Features of ImageNet, real images",
        "What the linear model on features reaches when it may see the real training images.",
    ),
)


def _earlier(name: str, reads: Reads) -> Metric:
    """A metric of reports up to 1.0.0, which nothing computes any more."""
    meaning = "Share of real test images that a residual network of an earlier version labels correctly."
    return Metric(name, "Residual network of an earlier version", meaning, "percent", "higher", reads)


RESIDUAL_METRICS: Final = (
    _earlier("accuracy_resnet", "test"),
    _earlier("floor_moments_resnet", "training"),
    _earlier("ceiling_resnet", "training"),
)
