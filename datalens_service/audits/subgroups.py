"""Loss threshold by class: a threshold chosen on one half of the candidates, scored on the other half."""

from __future__ import annotations

import numpy as np
import scipy
from pydantic import BaseModel, ConfigDict

from datalens_service.audits.evidence import Evidence, Fits
from datalens_service.audits.membership import CONFIDENCE, Interval

_FEWEST = 10
"""Candidates of a class below which nothing is said of it."""


class ClassFigures(BaseModel):
    """Success of the attack in one class.

    Attributes:
        class_name: Public name.
        candidates: Scored, as many members as others.
        success: Share of right guesses; one half is chance.
        interval: 95 % (Wilson 1927).
    """

    model_config = ConfigDict(frozen=True)

    class_name: str
    candidates: int
    success: float
    interval: Interval


def measure_classes(evidence: Evidence, class_names: tuple[str, ...], seed: int) -> tuple[ClassFigures, ...]:
    """Figures of every class with enough members and others.

    Args:
        evidence: Fits of all candidates.
        class_names: In label order.
        seed: Of the halves.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for label, name in enumerate(class_names):
        of_class = evidence.labels == label
        members = rng.permutation(evidence.target[of_class & evidence.is_member])
        others = rng.permutation(evidence.target[of_class & ~evidence.is_member])
        size = min(len(members), len(others))
        if size >= _FEWEST:
            rows.append(_measure_class(name, members[:size], others[:size]))
    return tuple(rows)


def _measure_class(name: str, members: Fits, others: Fits) -> ClassFigures:
    half = len(members) // 2
    threshold = _best_threshold(members[:half], others[:half])
    right = int((members[half:] > threshold).sum() + (others[half:] <= threshold).sum())
    scored = 2 * (len(members) - half)
    interval = scipy.stats.binomtest(right, scored).proportion_ci(CONFIDENCE, "wilson")
    return ClassFigures(
        class_name=name,
        candidates=scored,
        success=right / scored,
        interval=(float(interval.low), float(interval.high)),
    )


def _best_threshold(members: Fits, others: Fits) -> float:
    """The one with most right guesses: members above it, others up to it."""
    thresholds = np.unique(np.concatenate([members, others]))
    others_below, members_below = (np.searchsorted(np.sort(fits), thresholds, "right") for fits in (others, members))
    return float(thresholds[(others_below - members_below).argmax()])
