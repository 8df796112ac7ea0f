"""Evaluation: what a job measured, what each number means, and who may see it. No torch at import."""

from datalens_service.evaluation.measures import METRICS, ClassFigure, Measure, Metric, Unavailable
from datalens_service.evaluation.settings import EvaluationSettings

__all__ = ["METRICS", "ClassFigure", "EvaluationSettings", "Measure", "Metric", "Unavailable"]
