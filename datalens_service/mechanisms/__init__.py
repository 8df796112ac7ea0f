"""The mechanisms; this union is the registry that contract tests and documentation checks walk through."""

from datalens_service.mechanisms.accuracy import AccuracyCount
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.count_sketch import CountSketch, CountSketchParameters
from datalens_service.mechanisms.cross_product import CrossProductSum
from datalens_service.mechanisms.gradient_sum import GradientChunk, GradientSum
from datalens_service.mechanisms.klevel import KLevel, KLevelParameters
from datalens_service.mechanisms.moments import BoundedSum, OuterProductSum, VectorSum
from datalens_service.mechanisms.topagg import TopAgg, TopAggParameters
from datalens_service.mechanisms.votes import (
    DistributedGradients,
    PartialGradients,
    Threshold,
    VoteMechanism,
    VoteParameters,
)

AnyMechanism = (
    TopAgg | KLevel | CountSketch | VectorSum | OuterProductSum | CrossProductSum | GradientSum | AccuracyCount
)

AnyVotes = TopAggParameters | KLevelParameters | CountSketchParameters
"""Ways to vote, with the parameters that each has; told apart by `name`."""

__all__ = [
    "Account",
    "AccuracyCount",
    "AnyMechanism",
    "AnyVotes",
    "BoundedSum",
    "CountSketch",
    "CountSketchParameters",
    "CrossProductSum",
    "DistributedGradients",
    "GradientChunk",
    "GradientSum",
    "KLevel",
    "KLevelParameters",
    "Mechanism",
    "OuterProductSum",
    "PartialGradients",
    "Threshold",
    "TopAgg",
    "TopAggParameters",
    "VectorSum",
    "VoteMechanism",
    "VoteParameters",
]
