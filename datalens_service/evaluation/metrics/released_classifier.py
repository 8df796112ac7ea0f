"""Accuracy of a released classifier, and accuracies that a job pays for on a data set that was set aside.

`evaluation/evaluate.py` and the hold-out of a job measure them.
"""

from typing import Final

from datalens_service.evaluation.metrics.metric import Metric

ACCURACY: Final = Metric(
    name="classifier_accuracy",
    title="Released classifier",
    meaning="Share of real test images that the released classifier labels correctly.",
    unit="percent",
    better="higher",
    reads="test",
)
HOLDOUT_IMAGES: Final = Metric(
    name="accuracy_holdout",
    title="Set-aside images, noisy count",
    meaning="Share of the images of another private data set that the standard CNN labels correctly, with noise added "
    "and paid for from the budget of that data set.",
    unit="percent",
    better="higher",
    reads="released",
    family="accuracy_holdout",
)
HOLDOUT: Final = Metric(
    name="classifier_accuracy_holdout",
    title="Released classifier, set-aside images, noisy count",
    meaning="Share of the images of another private data set that the released classifier labels correctly, with noise "
    "added and paid for from the budget of that data set.",
    unit="percent",
    better="higher",
    reads=HOLDOUT_IMAGES.reads,
)
