"""The mechanisms; this union is the registry that contract tests and documentation checks walk through."""

from datalens_service.mechanisms.accuracy import AccuracyCount
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.count_sketch import CountSketch
from datalens_service.mechanisms.cross_product import CrossProductSum
from datalens_service.mechanisms.gradient_sum import GradientChunk, GradientSum
from datalens_service.mechanisms.klevel import KLevel
from datalens_service.mechanisms.moments import BoundedSum, OuterProductSum, VectorSum
from datalens_service.mechanisms.topagg import TopAgg
from datalens_service.mechanisms.votes import DistributedGradients, PartialGradients, Threshold, VoteMechanism

AnyMechanism = (
    TopAgg | KLevel | CountSketch | VectorSum | OuterProductSum | CrossProductSum | GradientSum | AccuracyCount
)

VOTES: dict[str, type[VoteMechanism]] = {"topagg": TopAgg, "klevel": KLevel, "count_sketch": CountSketch}
"""Ways to vote, by the name a method's parameters use."""

__all__ = [
    "VOTES",
    "Account",
    "AccuracyCount",
    "AnyMechanism",
    "BoundedSum",
    "CountSketch",
    "CrossProductSum",
    "DistributedGradients",
    "GradientChunk",
    "GradientSum",
    "KLevel",
    "Mechanism",
    "OuterProductSum",
    "PartialGradients",
    "Threshold",
    "TopAgg",
    "VectorSum",
    "VoteMechanism",
]
