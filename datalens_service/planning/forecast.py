"""Ranges of accuracy that are expected of planned jobs, from jobs on other sets (docs/expectations.md).

A line is fitted through what jobs reached on all sets, by facts that are public: the evidence (μ of the budget times
the units of a class), the number of classes, colours and pixels. It is fitted to the log-odds of the gain over
guessing, so that nothing is below guessing or above certainty. A range is a fifth wider than the furthest set lay from
a line that was fitted without it; nothing else is tuned. More evidence never lowers an end of a range.
"""

import functools
import math
from typing import Final, NamedTuple

import numpy as np

from datalens_service.base.arrays import Floats
from datalens_service.methods.facts import LEAST_EVIDENCE
from datalens_service.planning.measured import Measured, read_rows
from datalens_service.privacy.accounting import mu_for_epsilon

REAL: Final = "real"
_RIDGE: Final = 0.3
_LEAST_GAIN: Final = 0.02
_FEWEST: Final = 6
"""Sets without which no line is fitted."""
_MARGIN: Final = 1.2
"""Factor on the furthest set, since sets that nobody measured may lie further."""
_BEYOND: Final = 1.5
"""Factor on the width of a range where a fact lies outside of what was measured."""
_ALIKE_SIDES, _ALIKE_CLASSES, _ALIKE_EVIDENCE = 1.5, 2.0, 3.0


class ForecastFacts(NamedTuple):
    """Public facts that a forecast rests on.

    Attributes:
        evidence: μ of the budget times the units of a class.
        per_class: Units of a class.
        majority: Share of the most frequent class as declared; None where a figure is a mean over classes.
    """

    evidence: float
    per_class: float
    classes: int
    pixels: int
    coloured: bool
    majority: float | None = None

    @property
    def guessing(self) -> float:
        """Return what naming one class always reaches, as a share."""
        return self.majority or 1 / self.classes

    def amount(self, choice: str) -> float:
        """Return how much there is to learn from; what real images teach does not depend on the budget."""
        return self.per_class if choice == REAL else self.evidence

    def as_numbers(self, choice: str) -> list[float]:
        """Return the numbers that a line weighs."""
        return [
            math.log10(max(self.amount(choice), 1.0)),
            1.0,
            math.log10(self.classes),
            float(self.coloured),
            math.log10(self.pixels),
        ]


class Range(NamedTuple):
    """A range in percent, and the sets that it rests on.

    Attributes:
        middle: As likely to be missed as to be reached.
        alike: The sets with such facts, the nearest first; empty where some fact lies outside of what was measured.
        measured: True if facts lie among those of several sets.
    """

    low: float
    middle: float
    high: float
    alike: tuple[str, ...] = ()
    measured: bool = False


def facts_of_row(row: Measured, *, declared: bool) -> ForecastFacts:
    """Return the facts of a measured job, with the frequencies of its classes or without."""
    per_class = row.units / row.num_classes
    evidence = per_class * mu_for_epsilon(row.epsilon, row.delta) if row.epsilon else per_class
    majority = row.majority / 100 if declared else None
    return ForecastFacts(evidence, per_class, row.num_classes, row.height * row.width, row.channels > 1, majority)


class _Line(NamedTuple):
    """A fitted line, with the most that left-out sets had below and above it, and the least and greatest facts."""

    choice: str
    weights: Floats
    below: float
    above: float
    least: Floats
    greatest: Floats

    def read(self, facts: ForecastFacts) -> tuple[float, float, float, bool]:
        """Return low, middle and high gain, and whether every fact lies within what was measured."""
        numbers = np.array(facts.as_numbers(self.choice))
        outside = (numbers < self.least - 1e-9) | (numbers > self.greatest + 1e-9)
        wider = _BEYOND if outside[1:].any() else 1.0
        centre = float(numbers @ self.weights)
        # With more evidence than was measured no less is reached, and how much more is not known.
        known = float(np.concatenate([[min(numbers[0], self.greatest[0])], numbers[1:]]) @ self.weights)
        ends = known + wider * self.below, known, centre + wider * self.above
        low, middle, high = (1 / (1 + math.exp(-end)) for end in ends)
        # Below what is of any use, gains fall to nothing.
        share = min(1.0, facts.amount(self.choice) / LEAST_EVIDENCE)
        low, middle, high = share * low, share * middle, math.sqrt(share) * high
        # What is next to nothing may be nothing.
        return low if low > 2 * _LEAST_GAIN else 0.0, middle, high, not outside.any()


def forecast(choice: str, facts: ForecastFacts, without: str | None = None) -> Range:
    """Return the range that is expected of what learned.

    Args:
        choice: A choice of auto, a baseline or real images, as in the table.
        facts: Those of the planned job.
        without: A set whose rows are left out.
    """
    declared = facts.majority is not None
    line = _fit(choice, declared, without)
    guessing = 100 * facts.guessing
    if line is None:
        return Range(guessing, (guessing + 100) / 2, 100.0)
    low, middle, high, inside = line.read(facts)
    alike = _find_alike(choice, facts, without) if inside else ()
    # No public fact bounds what real images teach: some sets are labelled perfectly.
    low, middle, high = (guessing + (100 - guessing) * gain for gain in (low, middle, 1.0 if choice == REAL else high))
    return Range(low, middle, high, alike[:3], len(alike) > 1)


def list_usable(choice: str, without: str | None = None) -> list[Measured]:
    """List the rows of a choice whose figures are those of today's standard CNN, or of a classifier itself."""
    return [
        row
        for row in read_rows()
        if row.choice == choice and row.dataset != without and (row.judge > 1 or row.choice == "classifier")
    ]


@functools.cache
def _fit(choice: str, declared: bool, without: str | None) -> _Line | None:
    rows = [row for row in list_usable(choice, without) if declared or row.balanced is not None]
    names = {row.dataset for row in rows}
    if len(names) < _FEWEST:
        return None
    numbers = np.array([facts_of_row(row, declared=declared).as_numbers(choice) for row in rows])
    found = np.array([_read_odds(row, declared=declared) for row in rows])
    sets = np.array([row.dataset for row in rows])
    weights = np.array([1 / (sets == name).sum() for name in sets])
    beyond = np.concatenate(
        [
            (found - numbers @ _solve(numbers[sets != name], found[sets != name], weights[sets != name]))[sets == name]
            for name in sorted(names)
        ]
    )
    ends = _MARGIN * min(beyond.min(), 0.0), _MARGIN * max(beyond.max(), 0.0)
    return _Line(choice, _solve(numbers, found, weights), *ends, numbers.min(axis=0), numbers.max(axis=0))


def _solve(numbers: Floats, found: Floats, weights: Floats) -> Floats:
    """Least squares in which every set counts alike; what weighs nothing but chance is drawn towards nothing."""
    centre = numbers.mean(axis=0)
    centre[1] = 0.0
    moved = numbers - centre
    ridge = _RIDGE * np.diag([0.0, 0.0, 1.0, 1.0, 1.0])
    solved: Floats = np.linalg.solve((moved.T * weights) @ moved + ridge, (moved.T * weights) @ found)
    solved[0] = max(solved[0], 0.0)
    solved[1] -= centre @ solved
    return solved


def _read_odds(row: Measured, *, declared: bool) -> float:
    guessing = 100 * facts_of_row(row, declared=declared).guessing
    reached = row.accuracy if declared or row.balanced is None else row.balanced
    gain = min(max((reached - guessing) / (100 - guessing), _LEAST_GAIN), 1 - _LEAST_GAIN / 4)
    return math.log(gain / (1 - gain))


def _find_alike(choice: str, facts: ForecastFacts, without: str | None) -> tuple[str, ...]:
    """Name the sets with about as many classes, pixels and evidence and as many colours, the nearest first."""
    far: dict[str, float] = {}
    for row in list_usable(choice, without):
        other = facts_of_row(row, declared=False)
        ratios = (
            math.log(facts.pixels / other.pixels) / math.log(_ALIKE_SIDES**2),
            math.log(facts.classes / other.classes) / math.log(_ALIKE_CLASSES),
            math.log(max(facts.evidence, 1e-9) / other.evidence) / math.log(_ALIKE_EVIDENCE),
        )
        if other.coloured == facts.coloured and max(map(abs, ratios)) <= 1:
            far[row.dataset] = min(far.get(row.dataset, math.inf), sum(map(abs, ratios)))
    return tuple(sorted(far, key=lambda name: far[name]))
