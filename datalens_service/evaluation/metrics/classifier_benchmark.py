"""One test set and one protocol for every training set, so that only the training images differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from datalens_service.data.dataset import Images, Labels
from datalens_service.evaluation.metrics import downstream
from datalens_service.evaluation.metrics.classifiers import ClassifierArchitecture
from datalens_service.evaluation.metrics.reference import Reference
from datalens_service.evaluation.settings import EvaluationSettings

Observe = Callable[[int, int], None]
Draw = Callable[[int], tuple[Images, downstream.Targets]]

STEPS_OF_A_PASS: Final = 10
"""Steps of progress for as much work as a pass over the synthetic images that the settings name."""


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
    num_classes: int
    settings: EvaluationSettings
    classifier: ClassifierArchitecture
    device: str
    progress: StepCounter

    def predictions(self, draw: Draw, epochs: int) -> list[Labels]:
        """Return the predicted labels of the test images, per seed, after training on `draw(seed)`."""
        return [self._predicted(*draw(seed), epochs, seed) for seed in range(self.settings.repetitions)]

    def accuracies(self, predictions: Sequence[Labels]) -> list[float]:
        """Return the percentage of right labels, per seed."""
        return [100 * float(np.mean(given == self.reference.split.labels)) for given in predictions]

    def protocol(self, training_set: str, epochs: int) -> str:
        """Describe the measurement for a reader who wants to repeat it."""
        return f"{trained_by(self.classifier, self.settings, epochs, training_set)}; tested on {self.reference.name}"

    def _predicted(self, images: Images, labels: downstream.Targets, epochs: int, seed: int) -> Labels:
        begun, steps = self.progress.done, STEPS_OF_A_PASS * self.settings.epochs
        network = downstream.trained(
            images,
            labels,
            self.num_classes,
            epochs=epochs,
            seed=seed,
            device=self.device,
            classifier=self.classifier,
            batch_size=self.settings.batch_size,
            observe=lambda seen, whole: self.progress.reach(begun + steps * seen // whole),
        )
        return downstream.labelled(network, self.reference.split.images, self.device)


def trained_by(classifier: ClassifierArchitecture, settings: EvaluationSettings, epochs: int, training_set: str) -> str:
    """Describe the training of a classifier, with every number that a repetition needs."""
    return f"{classifier.description}, {epochs} epochs on {training_set} in batches of {settings.batch_size}"
