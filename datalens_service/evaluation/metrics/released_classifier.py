"""Accuracy of a released classifier; `evaluation/classification.py` and the hold-out of a job measure it."""

from typing import Final

from datalens_service.evaluation.metrics import holdout
from datalens_service.evaluation.metrics.metric import Metric

ACCURACY: Final = Metric(
    name="classifier_accuracy",
    title="Released classifier",
    meaning="Share of real test images that the released classifier labels correctly.",
    unit="percent",
    better="higher",
    reads="test",
)
HOLDOUT: Final = Metric(
    name="classifier_accuracy_holdout",
    title="Released classifier, set-aside images, noisy count",
    meaning="Share of the images of another private data set that the released classifier labels correctly, with noise "
    "added and paid for from the budget of that data set.",
    unit="percent",
    better="higher",
    reads=holdout.METRIC.reads,
)
