"""Evaluation: the measurements of a job, what each means, and who may see it. No torch at import."""

from datalens_service.evaluation.measures import ClassFigure, Measure, Unavailable
from datalens_service.evaluation.metrics import METRICS
from datalens_service.evaluation.settings import EvaluationSettings

__all__ = ["METRICS", "ClassFigure", "EvaluationSettings", "Measure", "Unavailable"]
