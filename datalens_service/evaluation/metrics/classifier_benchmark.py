"""One test set and one protocol for every training set, so that only the training images differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from datalens_service.data.dataset import Images, Labels, Schema
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.classifiers import LINEAR, STANDARD, JudgeClassifier
from datalens_service.evaluation.metrics.discriminant import label_by_features
from datalens_service.evaluation.metrics.outcome import MetricResult, Score
from datalens_service.evaluation.metrics.reference import Reference
from datalens_service.evaluation.settings import EvaluationSettings

Observe = Callable[[int, int], None]
Draw = Callable[[int], tuple[Images, downstream.Targets]]

STEPS_OF_A_TRAINING: Final = 20
"""Steps of progress that one training counts as."""


@dataclass
class StepCounter:
    """Counts steps, whose number depends on the settings only.

    Attributes:
        observe: Called at every step; may raise to stop.
        interruption: The error that `observe` raised, which is not the fault of a figure.
    """

    observe: Observe
    steps: int
    done: int = field(default=0, init=False)
    interruption: BaseException | None = field(default=None, init=False)

    def reach(self, steps: int) -> None:
        """Count steps one by one, also those that a figure left out: their number depends on nothing private."""
        while self.done < steps:
            self.step()

    def step(self) -> None:
        """Count one more step."""
        self.done += 1
        self.pulse()

    def pulse(self) -> None:
        """Report progress within a step that takes long."""
        try:
            self.observe(self.done, self.steps)
        except BaseException as error:
            self.interruption = error
            raise


@dataclass
class ClassifierBenchmark:
    """Trains a classifier once per seed and tests it on the same images each time."""

    reference: Reference
    schema: Schema
    settings: EvaluationSettings
    classifier: JudgeClassifier
    device: str
    progress: StepCounter

    def predictions(self, draw: Draw) -> list[Labels]:
        """Labels given to the test images, per seed, after training on `draw(seed)`."""
        return [self.label(*draw(seed), seed) for seed in range(self.settings.repetitions)]

    def outcome(self, predictions: Sequence[Labels], training_set: str) -> MetricResult:
        """Accuracies, and what was done, for a reader who wants to do it again."""
        scores = [Score.from_labels(given, self.reference.split.labels) for given in predictions]
        learned = trained_by(self.classifier, self.settings, training_set)
        return MetricResult.from_scores(scores, f"{learned}; tested on {self.reference.name}")

    def label(self, images: Images, labels: downstream.Targets, seed: int) -> Labels:
        """Labels given to the test images after training on `images`."""
        begun, tested = self.progress.done, self.reference.split.images
        if self.classifier is LINEAR:
            given = label_by_features(images, labels, tested, self.schema)
            self.progress.reach(begun + STEPS_OF_A_TRAINING)
            return given
        network = downstream.train_network(
            images,
            labels,
            self.schema.num_classes,
            seed=seed,
            device=self.device,
            steps=self.settings.steps,
            batch_size=self.settings.batch_size,
            mirrored=self.settings.mirrored,
            observe=lambda done, whole: self.progress.reach(begun + STEPS_OF_A_TRAINING * done // whole),
        )
        return downstream.label_images(network, tested, self.device)


def trained_by(classifier: JudgeClassifier, settings: EvaluationSettings, training_set: str) -> str:
    """Describe the training of a classifier, with every number that a repetition needs."""
    if classifier is not STANDARD:
        return f"{classifier.description}, on {training_set}"
    mirrored = ", mirrored at random" if settings.mirrored else ""
    return f"{classifier.description}, {settings.steps:,} steps of {settings.batch_size} of {training_set}{mirrored}"
