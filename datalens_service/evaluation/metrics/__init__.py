"""Metrics of the report: one module each, one line each in `_REGISTERED`."""

from typing import Final

from datalens_service.evaluation.metrics import accuracy, baselines, fidelity, released_classifier
from datalens_service.evaluation.metrics.metric import Metric

_REGISTERED: Final = (
    accuracy.ACCURACY,
    accuracy.DISCRIMINANT,
    baselines.MAJORITY,
    baselines.METRIC,
    accuracy.MOMENTS,
    accuracy.REAL_IMAGES,
    *accuracy.FEATURE_METRICS,
    *accuracy.RESIDUAL_METRICS,
    released_classifier.HOLDOUT_IMAGES,
    released_classifier.ACCURACY,
    released_classifier.HOLDOUT,
    *fidelity.METRICS,
)

METRICS: Final[dict[str, Metric]] = {metric.name: metric for metric in _REGISTERED}
"""All metrics by name, in the order of the report."""
