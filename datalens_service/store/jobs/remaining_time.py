"""Estimates how long a running job will go on, by its plan and by how it has kept to it so far."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from datalens_service.base.progress import Phase
from datalens_service.store.jobs.jobs import Job

_SLOWEST, _FASTEST = 30.0, 0.1
"""Times the expected seconds that a machine may take."""
_FEW_SECONDS: Final = 10.0
"""Expected, below which a phase says little of how fast the machine is."""
_OVERDUE: Final = 0.25
"""Part of the time of a phase that is left, at least, while nobody knows how far it is."""
_TRUST: Final = 0.3
"""In steps, as a power of the share that was made: steps are told as long as they are."""


def estimate_seconds_left(job: Job, now: datetime) -> float | None:
    """Estimate the seconds left of the whole job; None before a worker has begun."""
    if job.started_at is None or job.progress.started_at is None:
        return None
    spent = max(0.0, (now - job.progress.started_at).total_seconds())
    # If another worker held the job before, nobody knows how long it stood still.
    before = (job.progress.started_at - job.started_at).total_seconds() if job.lease_token <= 1 else 0.0
    return seconds_left(job.progress.phase or "", job.progress.share, before, spent, job.price.get("phase_seconds", {}))


def seconds_left(phase: str, share: float, before: float, spent: float, expected: Mapping[str, float]) -> float | None:
    """Estimate for the rest of a job in seconds; None where there is neither a step nor an expectation.

    Args:
        share: Share of the steps of the phase that were made, from 0 to 1.
        before: Seconds that went into earlier phases.
        spent: And into this one.
        expected: Seconds of each phase by the plan, on a machine that does nothing else; of an old job, none.
    """
    order = list(Phase)
    here = order.index(Phase(phase)) if phase in order else 0
    own = expected.get(phase, 0.0)
    done = sum(expected.get(one, 0.0) for one in order[:here])
    done = done if before > 0 else 0.0
    pace = _bound(before / done) if done >= _FEW_SECONDS else 1.0
    whole = _whole_phase(share, spent, own * pace)
    if whole is None:
        return None
    if done + own >= _FEW_SECONDS and own:
        pace = _bound(((before if done else 0.0) + whole) / (done + own))
    rest = max(whole - spent, (1 - share) * _OVERDUE * spent)
    return rest + pace * sum(expected.get(one, 0.0) for one in order[here + 1 :])


def _whole_phase(share: float, spent: float, planned: float) -> float | None:
    """Weigh the seconds that its steps suggest, with more weight the more were made, against those of the plan."""
    by_steps = spent / share if share > 0 else 0.0
    if not planned or not by_steps:
        return max(by_steps, planned) or None
    weight = share**_TRUST
    return math.exp(weight * math.log(by_steps) + (1 - weight) * math.log(planned))


def _bound(pace: float) -> float:
    return min(_SLOWEST, max(_FASTEST, pace))
