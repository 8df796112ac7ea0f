"""The mechanisms; this union is the registry that contract tests and documentation checks walk through."""

from datalens_service.mechanisms.accuracy import AccuracyCount
from datalens_service.mechanisms.base import Account, Mechanism
from datalens_service.mechanisms.cell_votes import CellVotes
from datalens_service.mechanisms.clipped_rows import ClippedRows, ClippedRowsParameters
from datalens_service.mechanisms.count_sketch import CountSketch, CountSketchParameters
from datalens_service.mechanisms.cross_product import CrossProductSum
from datalens_service.mechanisms.gradient_sum import GradientChunk, GradientSum
from datalens_service.mechanisms.histogram import Histogram, HistogramParameters
from datalens_service.mechanisms.individual_histogram import IndividualHistogram
from datalens_service.mechanisms.klevel import KLevel, KLevelParameters
from datalens_service.mechanisms.label_scores import LabelScores, LabelScoresParameters
from datalens_service.mechanisms.moments import BoundedSum, OuterProductSum, VectorSum
from datalens_service.mechanisms.topagg import TopAgg, TopAggParameters
from datalens_service.mechanisms.von_mises_fisher import VonMisesFisherSum
from datalens_service.mechanisms.votes import (
    DistributedGradients,
    PartialGradients,
    Threshold,
    VoteMechanism,
    VoteParameters,
)

AnyMechanism = (
    TopAgg
    | KLevel
    | CountSketch
    | Histogram
    | ClippedRows
    | LabelScores
    | VectorSum
    | CellVotes
    | OuterProductSum
    | CrossProductSum
    | GradientSum
    | AccuracyCount
    | IndividualHistogram
    | VonMisesFisherSum
)

AnyVotes = TopAggParameters | KLevelParameters | CountSketchParameters | HistogramParameters | ClippedRowsParameters
"""Ways to vote, with the parameters that each has; told apart by `name`."""

__all__ = [
    "Account",
    "AccuracyCount",
    "AnyMechanism",
    "AnyVotes",
    "BoundedSum",
    "CellVotes",
    "ClippedRows",
    "ClippedRowsParameters",
    "CountSketch",
    "CountSketchParameters",
    "CrossProductSum",
    "DistributedGradients",
    "GradientChunk",
    "GradientSum",
    "Histogram",
    "HistogramParameters",
    "IndividualHistogram",
    "KLevel",
    "KLevelParameters",
    "LabelScores",
    "LabelScoresParameters",
    "Mechanism",
    "OuterProductSum",
    "PartialGradients",
    "Threshold",
    "TopAgg",
    "TopAggParameters",
    "VectorSum",
    "VonMisesFisherSum",
    "VoteMechanism",
    "VoteParameters",
]
