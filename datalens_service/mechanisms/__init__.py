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
"""The ways to vote, each with its parameters; `name` tells them apart."""


class PlannedRelease(BaseModel):
    """`count` equal releases of one mechanism, in the order in which they are charged."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mechanism: AnyMechanism = Field(discriminator="name")
    count: int = Field(default=1, ge=1)

    def cost(self, relation: NeighboringRelation = NeighboringRelation.ZERO_OUT) -> int:
        """Return the ledger units of all of them; a block of sampled batches is charged as a whole."""
        return self.mechanism.price(self.count, relation).ledger_units

    @property
    def slack(self) -> int:
        return self.mechanism.price(self.count).slack

    def describe(self) -> dict[str, Any]:
        return {**self.mechanism.describe(), "count": self.count}

    @property
    def label(self) -> str:
        return self.mechanism.label()

    def charge_after(self, made: int) -> Charge:
        """Return what `made` of these releases cost under zero-out; a block is charged in full with its first draw."""
        return self.mechanism.price(made) if made else Charge(0)


__all__ = [
    "Account", "AccuracyCount", "AnyMechanism", "AnyVotes", "BoundedSum", "CellVotes", "ClippedRows",
    "ClippedRowsParameters", "CountSketch", "CountSketchParameters", "CrossProductSum", "DistributedGradients",
    "GradientChunk", "GradientSum", "Histogram", "HistogramParameters", "IndividualHistogram", "KLevel",
    "KLevelParameters", "LabelScores", "LabelScoresParameters", "Mechanism", "OuterProductSum", "PartialGradients",
    "PlannedRelease", "Threshold", "TopAgg", "TopAggParameters", "VectorSum", "VonMisesFisherSum", "VoteMechanism",
    "VoteParameters",
]  # fmt: skip
