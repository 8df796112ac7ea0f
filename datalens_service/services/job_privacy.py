"""What a job has spent, as the API, the pages and the command line show it."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from datalens_service.privacy.accounting import Charge, epsilon_of_charge, mu_of_units, round_up
from datalens_service.spec import PlanSummary


class JobPrivacy(BaseModel):
    """What a job has spent so far."""

    epsilon_spent: float = Field(description="ε at `delta` of the releases made so far, rounded up.")
    epsilon_limit: float = Field(description="ε the job may spend.")
    delta: float
    mu: float = Field(description="μ of the releases made so far, rounded up.")

    @classmethod
    def from_charged_units(cls, units: int, cost: PlanSummary) -> Self:
        """The spending of a job that was charged `units` ledger units, at the δ of its plan.

        The slack of a plan is charged with its first sampled release; here with the first of all.
        """
        return cls(
            epsilon_spent=round_up(epsilon_of_charge(Charge(units, cost.slack if units else 0), cost.delta)),
            epsilon_limit=cost.epsilon_limit,
            delta=cost.delta,
            mu=round_up(mu_of_units(units), 6),
        )
