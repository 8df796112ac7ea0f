"""Accuracy on a dataset that was set aside: a noisy count that the job charges to that dataset's account."""

from typing import Final

from datalens_service.evaluation.metrics.metric import Metric

METRIC: Final = Metric(
    name="accuracy_holdout",
    title="Set-aside images, noisy count",
    meaning="Share of the images of another private data set that the standard CNN labels correctly, with noise added "
    "and paid for from the budget of that data set.",
    unit="percent",
    better="higher",
    reads="released",
    family="accuracy_holdout",
)
