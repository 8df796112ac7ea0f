"""Releases as they are planned, charged and reported."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.mechanisms import AnyMechanism
from datalens_service.privacy.accounting import Charge, NeighboringRelation


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
