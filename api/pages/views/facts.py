"""Facts that several pages show of datasets and jobs: gauges of budgets, phases.

Shares of a gauge are of μ², which adds up; ε does not.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

from datalens_service.api.deps import Services
from datalens_service.api.schemas.common import BudgetRead, DatasetRead
from datalens_service.api.schemas.jobs import JobRead
from datalens_service.api.security.permissions import show_submitter
from datalens_service.base.progress import Phase
from datalens_service.spec import PlanSummary
from datalens_service.store.access.keys import ApiKey
from datalens_service.store.datasets.datasets import StoredDataset, read_names
from datalens_service.store.datasets.views import DatasetView
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import account_summary


def dataset_facts(services: Services, *datasets: StoredDataset) -> dict[str, dict[str, Any]]:
    """Datasets with their budgets and gauges, by id."""
    with services.database.session() as session:
        accounts = account_summary.summarize_accounts(session, [each.id for each in datasets])
    return {
        each.id: {
            "dataset": DatasetRead.from_view(DatasetView.from_dataset(each), accounts[each.id]),
            "gauge": divide_budget(BudgetRead.from_account(accounts[each.id])),
        }
        for each in datasets
    }


def job_rows(services: Services, key: ApiKey, listed: tuple[Job, ...]) -> list[dict[str, Any]]:
    """Jobs with the names of their datasets, as the holder of a key sees them."""
    named = read_names(services.database, {job.dataset_id for job in listed})
    return [
        {
            "job": JobRead.from_job(job, submitted_by=show_submitter(job, key)),
            "name": named[job.dataset_id],
            "stages": job_phases(job),
        }
        for job in listed
    ]


@dataclass(frozen=True)
class Shares:
    """Parts of a whole in percent; together at most 100."""

    spent: float
    reserved: float = 0.0
    planned: float = 0.0

    @property
    def left(self) -> float:
        """Return the part that none of them takes."""
        return max(0.0, 100 - self.spent - self.reserved - self.planned)


def divide_budget(budget: BudgetRead, planned_units: int = 0) -> Shares:
    """Divide the lifetime budget of a data set into what is spent, reserved and left.

    Args:
        planned_units: Price of a job that is not submitted yet; cut at what remains.
    """
    units = budget.units
    spent = _percent_of(units.charged, units.limit)
    return Shares(
        spent=spent,
        # A frozen account may have spent more than its limit.
        reserved=min(_percent_of(units.reserved, units.limit), 100 - spent),
        planned=_percent_of(min(planned_units, units.remaining), units.limit),
    )


def divide_job(job: Job) -> Shares:
    """Divide the price of a job into what it has spent and the rest."""
    return Shares(spent=_percent_of(job.charged_units, PlanSummary.model_validate(job.price).ledger_units))


def _percent_of(part: int, whole: int) -> float:
    """Rounded up to a hundredth, never above 100."""
    return min(100.0, math.ceil(10_000 * part / whole) / 100) if whole else 0.0


StageState = Literal["done", "current", "paused", "stopped", "todo"]

_STAGES: Final = (
    ("queued", "Waiting"),
    (Phase.TRAINING, "Training"),
    (Phase.FITTING, "Fitting"),
    (Phase.DRAWING, "Drawing"),
    (Phase.PACKAGING, "Packing"),
    (Phase.EVALUATING, "Measuring"),
    (Phase.REPORTING, "Report"),
)
TITLES: Final = dict(_STAGES)
"""By the name of a phase."""
_UNMEASURED: Final = _STAGES[:5]
_NEVER_WHOLE: Final = 99.0
"""Percent of a stage that goes on: it has always something left to do."""


@dataclass(frozen=True)
class Stage:
    """One phase of a job.

    Attributes:
        state: `done`, `current`, `paused`, `stopped` (the job ended in it) or `todo`.
    """

    title: str
    state: StageState
    percent: float


def job_phases(job: Job) -> list[Stage]:
    """Every phase of a job with its state."""
    shown = _STAGES if job.spec.get("evaluation", {}).get("enabled", True) else _UNMEASURED
    here = _place(job, [phase for phase, _ in shown])
    return [
        Stage(title, _state(job, number, here), _percent_done(job, number, here))
        for number, (_, title) in enumerate(shown)
    ]


def _place(job: Job, phases: list[str]) -> int:
    """Number of the stage a job is in, or was in when it ended; behind the last one if it succeeded in all."""
    unmeasured = job.cancel_requested and job.progress.phase == Phase.EVALUATING
    if job.state is JobState.SUCCEEDED and not unmeasured:
        return len(phases)
    if job.state is JobState.QUEUED or job.started_at is None:
        return 0
    return phases.index(job.progress.phase) if job.progress.phase in phases else 1


def _state(job: Job, number: int, here: int) -> StageState:
    if number != here:
        return "done" if number < here else "todo"
    if job.state is JobState.PAUSED:
        return "paused"
    return "stopped" if job.state.terminal else "current"


def _percent_done(job: Job, number: int, here: int) -> float:
    if number != here:
        return 100.0 if number < here else 0.0
    progress = job.progress
    return min(_NEVER_WHOLE, round(100 * progress.value / progress.maximum, 1)) if number and progress.maximum else 0.0
