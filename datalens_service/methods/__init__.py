"""The methods; this union is the registry that REST, CLI, contract tests and documentation walk through."""

from datalens_service.methods.base import ExecutionOptions, Method, Plan, TrainingRun
from datalens_service.methods.datalens.method import DataLens
from datalens_service.methods.diffusion import Diffusion
from datalens_service.methods.dp_gan import DpGan
from datalens_service.methods.dp_sgd import DpSgd
from datalens_service.methods.guided import Guided
from datalens_service.methods.mixture import Mixture
from datalens_service.methods.moments import Moments
from datalens_service.methods.pate_gan import PateGan
from datalens_service.methods.pooled_moments import PooledMoments
from datalens_service.methods.rejection import Rejection
from datalens_service.methods.rejection_or_diffusion import RejectionOrDiffusion
from datalens_service.methods.scattering import Scattering
from datalens_service.methods.shapes import Shapes

AnyMethod = (
    DataLens
    | Moments
    | PooledMoments
    | Mixture
    | Guided
    | DpSgd
    | Scattering
    | Shapes
    | Rejection
    | Diffusion
    | RejectionOrDiffusion
    | PateGan
    | DpGan
)

__all__ = [
    "AnyMethod",
    "DataLens",
    "Diffusion",
    "DpGan",
    "DpSgd",
    "ExecutionOptions",
    "Guided",
    "Method",
    "Mixture",
    "Moments",
    "PateGan",
    "Plan",
    "PooledMoments",
    "Rejection",
    "RejectionOrDiffusion",
    "Scattering",
    "Shapes",
    "TrainingRun",
]
