"""The mechanisms and their planned releases; the union is the registry that tests of contracts and documents walk."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

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
from datalens_service.privacy.accounting import Charge, NeighboringRelation

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


class PlannedRelease(BaseModel):
    """`count` equal releases of one mechanism, in the order in which they are charged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: AnyMechanism = Field(discriminator="name")
    count: int = Field(default=1, ge=1)

    def cost(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> int:
        """Ledger units of all of them: what the mechanism itself charges; of sampled batches, all draws."""
        return self.mechanism.price(self.count, relation).units

    @property
    def slack(self) -> int:
        """What is charged beside the units, in 1e-18 of δ; 0 unless batches are sampled."""
        return self.mechanism.price(self.count).slack

    def describe(self) -> dict[str, Any]:
        """Public parameters, with the count."""
        return {**self.mechanism.describe(), "count": self.count}

    @property
    def label(self) -> str:
        """Its name in the ledger."""
        return self.mechanism.label()

    def charge_after(self, made: int) -> Charge:
        """What was charged under zero-out when `made` of them were made: of a block, all of it with the first."""
        return self.mechanism.price(made) if made else Charge(0)


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
    "PlannedRelease",
    "Threshold",
    "TopAgg",
    "TopAggParameters",
    "VectorSum",
    "VonMisesFisherSum",
    "VoteMechanism",
    "VoteParameters",
]
