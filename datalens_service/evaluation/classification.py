"""Measures a released classifier on the owner's test images: accuracy, and which class is taken for which."""

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from datalens_service.data.dataset import Dataset, Images, Labels
from datalens_service.errors import InvalidSpec
from datalens_service.evaluation.evaluate import NOTHING, Evaluation, attempted
from datalens_service.evaluation.measures import ConfusionTable, Measure, Measurements, Unavailable, measured
from datalens_service.evaluation.metrics.classifier_benchmark import Observe, Progress
from datalens_service.evaluation.metrics.outcome import Outcome, Standing
from datalens_service.evaluation.metrics.reference import Reference, test_reference
from datalens_service.evaluation.metrics.released_classifier import ACCURACY
from datalens_service.evaluation.settings import EvaluationSettings

PROTOCOL: Final = "labels of highest probability given by the released classifier"


@runtime_checkable
class Predicts(Protocol):
    """What is measured."""

    def predict(self, images: Images) -> NDArray[np.float32]:
        """(n, classes) probabilities of uint8 images (n, height, width, channels)."""


def predicting(model: object) -> Predicts:
    """A released model as one that predicts.

    Raises:
        InvalidSpec: It does not.
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
    progress = Progress(observe, 1)
    names = dataset.schema.class_names
    outcome = attempted(ACCURACY.title, lambda: _tested(classifier, tested, names), progress)
    progress.step()
    if isinstance(outcome, Unavailable):
        return NOTHING.with_outcome(outcome)
    measure, table = outcome
    return Evaluation.from_measurements(Measurements(measures=(measure,), confusion=table))


def _tested(classifier: Predicts, tested: Reference, names: tuple[str, ...]) -> tuple[Measure, ConfusionTable]:
    labels = tested.split.labels
    predicted = classifier.predict(tested.split.images).argmax(axis=1)
    accuracy = 100 * float(np.mean(predicted == labels))
    outcome = Outcome((accuracy,), f"{PROTOCOL}; tested on {tested.name}")
    measure = measured(ACCURACY, outcome, Standing(tested.audience, tested.status))
    return measure, confusion_table(labels, predicted, names, tested.name)


MOST_CLASSES: Final = 100
"""A table of more is no help to anybody."""


def confusion_table(labels: Labels, predicted: Labels, class_names: Sequence[str], reference: str) -> ConfusionTable:
    """Count the test images of each class by the class they were given: private as they are, for the owner alone.

    Args:
        labels: (m,) true labels.
        predicted: (m,) labels that were given.
        class_names: Declared classes; only the first 100 are counted.
        reference: What the images are, for the reader.
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
