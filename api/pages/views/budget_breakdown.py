"""Gauges: how a budget is divided. Shares are of μ², which adds up; ε does not."""

import math
from dataclasses import dataclass

from api.schemas.common import BudgetRead
from datalens_service.spec import PlanSummary
from datalens_service.store.jobs.jobs import Job


@dataclass(frozen=True)
class Shares:
    """Parts of a whole in percent; together at most 100."""

    spent: float
    reserved: float = 0.0
    planned: float = 0.0

    @property
    def left(self) -> float:
        """What none of them takes."""
        return max(0.0, 100 - self.spent - self.reserved - self.planned)


def divide_budget(budget: BudgetRead, planned_units: int = 0) -> Shares:
    """How the lifetime budget of a data set is divided.

    Args:
        planned_units: Price of a job that is not submitted yet; cut at what remains.
    """
    units = budget.units
    spent = _percent(units.charged, units.limit)
    return Shares(
        spent=spent,
        # A frozen account may have spent more than its limit.
        reserved=min(_percent(units.reserved, units.limit), 100 - spent),
        planned=_percent(min(planned_units, units.remaining), units.limit),
    )


def divide_job(job: Job) -> Shares:
    """How much of its own price a job has spent."""
    return Shares(spent=_percent(job.charged_units, PlanSummary.model_validate(job.price).units))


def _percent(part: int, whole: int) -> float:
    """Rounded up to a hundredth, never above 100."""
    return min(100.0, math.ceil(10_000 * part / whole) / 100) if whole else 0.0
