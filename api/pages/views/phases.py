"""The phases of a job, as a page shows them."""

from dataclasses import dataclass
from typing import Final, Literal

from datalens_service.phases import Phase
from datalens_service.store.jobs.jobs import Job, JobState

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
        Stage(title, _state(job, number, here), _percent(job, number, here)) for number, (_, title) in enumerate(shown)
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


def _percent(job: Job, number: int, here: int) -> float:
    if number != here:
        return 100.0 if number < here else 0.0
    progress = job.progress
    return min(_NEVER_WHOLE, round(100 * progress.value / progress.maximum, 1)) if number and progress.maximum else 0.0
