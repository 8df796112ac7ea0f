"""Loss threshold by class and by group: chosen on one half of the candidates, scored on the other half."""

from collections.abc import Mapping

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from datalens_service.audits.attacks import Evidence, Fits
from datalens_service.audits.membership import CONFIDENCE, Interval
from datalens_service.base.errors import InvalidInput

_FEWEST = 10
"""With fewer candidates on either side, no figure is given."""


class Success(BaseModel):
    """The success of one threshold.

    Attributes:
        candidates: Candidates that were scored, as many members as others.
        success: Share of right guesses; one half is chance.
        interval: 95 % interval (Wilson 1927).
    """

    model_config = ConfigDict(frozen=True)

    candidates: int
    success: float
    interval: Interval


class ClassFigures(Success):
    """Success of the attack in one class."""

    class_name: str


class GroupFigures(Success):
    """Success of the attack in several classes, with one threshold for all."""

    group: str
    class_names: tuple[str, ...]


def measure_classes(evidence: Evidence, class_names: tuple[str, ...], seed: int) -> tuple[ClassFigures, ...]:
    """Measure every class with enough members and others."""
    rng = np.random.default_rng(seed)
    rows = []
    for label, name in enumerate(class_names):
        success = _measure(evidence, evidence.labels == label, rng)
        if success is not None:
            rows.append(ClassFigures(class_name=name, **success.model_dump()))
    return tuple(rows)


def measure_groups(
    evidence: Evidence, class_names: tuple[str, ...], groups: Mapping[str, tuple[str, ...]], seed: int
) -> tuple[GroupFigures, ...]:
    """Measure every group with enough members and others."""
    rng = np.random.default_rng(seed)
    rows = []
    for name, members in groups.items():
        labels = [class_names.index(member) for member in members]
        success = _measure(evidence, np.isin(evidence.labels, labels), rng)
        if success is not None:
            rows.append(GroupFigures(group=name, class_names=members, **success.model_dump()))
    return tuple(rows)


def check_groups(class_names: tuple[str, ...], groups: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse groups of classes that do not exist."""
    for name, members in groups.items():
        if not members:
            raise InvalidInput(f"The group {name!r} names no class.")
        unknown = next((member for member in members if member not in class_names), None)
        if unknown is not None:
            raise InvalidInput(f"The group {name!r} names {unknown!r}, which is no class of this data set.")


def _measure(evidence: Evidence, chosen: NDArray[np.bool_], rng: np.random.Generator) -> Success | None:
    """Measure as many members as others; None if there are too few."""
    members = rng.permutation(evidence.target[chosen & evidence.is_member])
    others = rng.permutation(evidence.target[chosen & ~evidence.is_member])
    size = min(len(members), len(others))
    return _score(members[:size], others[:size]) if size >= _FEWEST else None


def _score(members: Fits, others: Fits) -> Success:
    half = len(members) // 2
    threshold = _best_threshold(members[:half], others[:half])
    right = int((members[half:] > threshold).sum() + (others[half:] <= threshold).sum())
    scored = 2 * (len(members) - half)
    interval = scipy.stats.binomtest(right, scored).proportion_ci(CONFIDENCE, "wilson")
    return Success(candidates=scored, success=right / scored, interval=(float(interval.low), float(interval.high)))


def _best_threshold(members: Fits, others: Fits) -> float:
    """Return the threshold with most right guesses: members above it, others up to it."""
    thresholds = np.unique(np.concatenate([members, others]))
    others_below, members_below = (np.searchsorted(np.sort(fits), thresholds, "right") for fits in (others, members))
    return float(thresholds[(others_below - members_below).argmax()])
