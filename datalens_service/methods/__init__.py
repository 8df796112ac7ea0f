"""The methods; this union is the registry that REST, CLI, contract tests and documentation walk through."""

from datalens_service.methods.base import Method, Plan
from datalens_service.methods.descent.diffusion import Diffusion
from datalens_service.methods.descent.dp_gan import DpGan
from datalens_service.methods.descent.dp_sgd import DpSgd
from datalens_service.methods.descent.rejection_or_diffusion import RejectionOrDiffusion
from datalens_service.methods.last_layer.guided import Guided
from datalens_service.methods.last_layer.labelled_moments import LabelledMoments
from datalens_service.methods.last_layer.rejection import Rejection
from datalens_service.methods.last_layer.scattering import Scattering
from datalens_service.methods.public.labelled_pool import LabelledPool
from datalens_service.methods.public.private_evolution import PrivateEvolution
from datalens_service.methods.public.public_votes import PublicVotes
from datalens_service.methods.script import ExecutionOptions
from datalens_service.methods.sums.mixture import Mixture
from datalens_service.methods.sums.moments import Moments
from datalens_service.methods.sums.pooled_moments import PooledMoments
from datalens_service.methods.sums.shapes import Shapes
from datalens_service.methods.voting.datalens import DataLens
from datalens_service.methods.voting.pate_gan import PateGan

AnyMethod = (
    DataLens
    | Moments
    | PooledMoments
    | Mixture
    | Guided
    | DpSgd
    | Scattering
    | Shapes
    | LabelledMoments
    | LabelledPool
    | PublicVotes
    | PrivateEvolution
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
    "LabelledMoments",
    "LabelledPool",
    "Method",
    "Mixture",
    "Moments",
    "PateGan",
    "Plan",
    "PooledMoments",
    "PrivateEvolution",
    "PublicVotes",
    "Rejection",
    "RejectionOrDiffusion",
    "Scattering",
    "Shapes",
]
