"""The methods; this union is the registry that REST, CLI, contract tests and documentation walk through."""

from datalens_service.methods.base import ExecutionOptions, Method, Plan, TrainingRun
from datalens_service.methods.datalens.method import DataLens
from datalens_service.methods.dp_sgd import DpSgd
from datalens_service.methods.guided import Guided
from datalens_service.methods.mixture import Mixture
from datalens_service.methods.moments import Moments
from datalens_service.methods.scattering import Scattering
from datalens_service.methods.shapes import Shapes

AnyMethod = DataLens | Moments | Mixture | Guided | DpSgd | Scattering | Shapes

__all__ = [
    "AnyMethod",
    "DataLens",
    "DpSgd",
    "ExecutionOptions",
    "Guided",
    "Method",
    "Mixture",
    "Moments",
    "Plan",
    "Scattering",
    "Shapes",
    "TrainingRun",
]
