"""The ε, or the number of units, that a wanted accuracy is expected to need: public curves, which cost no budget.

An accuracy counts as reached where the middle of its range reaches it, which is as likely as not.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.base.errors import DatalensError, InvalidSpec, UnreachableAccuracy
from datalens_service.base.fields import Stated
from datalens_service.base.parsing import decimal_text
from datalens_service.data.dataset import Schema
from datalens_service.planning.expectations import CLASSIFIER, Shares, expect_range, read_facts
from datalens_service.planning.expected_results import Comparison, Expectation, tell_range
from datalens_service.planning.forecast import ForecastFacts
from datalens_service.planning.presets import preset
from datalens_service.privacy.accounting import Charge, limit_units, mu_for_epsilon
from datalens_service.privacy.guarantee import tell_risk
from datalens_service.spec import PlanSummary, TrainingSpec

MOST_EPSILON: Final = 10.0
"""The largest ε that jobs were measured at."""
_STEPS: Final = 100
"""Steps of ε in 1."""
_MOST_UNITS: Final = 10_000_000


class Target(BaseModel):
    """The least ε that is expected to reach a wanted accuracy."""

    model_config = ConfigDict(frozen=True)

    accuracy: float = Field(description="Percent, as it was asked for.")
    epsilon: Stated = Field(description="The least ε at which the middle of the range reaches it, with as many units.")
    accuracy_low: float = Field(description="Percent, of harder images at that ε.")
    accuracy_high: float = Field(description="The same, of easier images.")
    units: int | None = Field(description="Units with which the ε of the plan is expected to reach it; null: unknown.")
    risk: str = Field(description="That ε in right guesses whether one unit was used.")
    sentence: str = Field(description="All of it as a sentence.")


class ForecastPlan(PlanSummary):
    """The cost of a plan, with an expectation of its results."""

    expectation: Expectation | None = None
    comparison: Comparison | None = None
    target: Target | None = None


def find_target(spec: TrainingSpec, schema: Schema, accuracy: float, shares: Shares = None) -> Target:
    """Find the least ε that is expected to reach an accuracy, and the units that the planned ε needs.

    Args:
        spec: The planned job; its δ counts, too.
        accuracy: Percent of real images.
        shares: Declared frequencies of the classes.

    Raises:
        InvalidSpec: Guessing gives as much.
        UnreachableAccuracy: No ε up to 10 is expected to reach it, in what was measured.
    """
    facts, delta = read_facts(spec, schema, shares), spec.delta_at(schema)
    if accuracy <= 100 * facts.guessing:
        given = f"{100 * facts.guessing:.0f} %"
        raise InvalidSpec(f"⟦spec.accuracy⟧ must be above {given}, which naming the most frequent class always gives.")
    planned = mu_for_epsilon(spec.epsilon, delta)

    def at_epsilon(step: int) -> ForecastFacts:
        return facts._replace(evidence=facts.evidence * mu_for_epsilon(step / _STEPS, delta) / planned)

    def at_units(count: int) -> ForecastFacts:
        more = count / schema.num_units
        return facts._replace(evidence=facts.evidence * more, per_class=facts.per_class * more)

    def reaches(found: ForecastFacts) -> bool:
        return expect_range(spec, schema, found).middle >= accuracy

    units = _find_least(lambda count: reaches(at_units(count)), _MOST_UNITS)
    step = _find_least(lambda step: reaches(at_epsilon(step)), round(MOST_EPSILON * _STEPS))
    enough = "" if units is None else f" At ε = {decimal_text(spec.epsilon)}, {_tell_units(units, schema)}."
    if step is None:
        most = expect_range(spec, schema, at_epsilon(round(MOST_EPSILON * _STEPS))).middle
        raise UnreachableAccuracy(
            f"{accuracy:g} % is out of reach: with {schema.privacy_unit.write_count(schema.num_units)}, even ε = "
            f"{MOST_EPSILON:g} is expected to give about {math.floor(most)} % only.{enough}"
            f"{_tell_classifier(spec, schema, accuracy, shares)}"
        )
    reached = expect_range(spec, schema, at_epsilon(step))
    epsilon = step / _STEPS
    return Target(
        accuracy=accuracy,
        epsilon=epsilon,
        accuracy_low=round(reached.low, 1),
        accuracy_high=round(reached.high, 1),
        units=units and _round_up(units),
        risk=tell_risk(schema.privacy_unit.word, Charge(limit_units(epsilon, delta))),
        sentence=f"ε = {decimal_text(epsilon)} is the least that is expected to reach {accuracy:g} % with these "
        f"{schema.privacy_unit.write_count(schema.num_units)}: as likely as not, in a range from "
        f"{tell_range(reached.low, reached.high)}.{enough}",
    )


def _tell_classifier(spec: TrainingSpec, schema: Schema, accuracy: float, shares: Shares) -> str:
    """Say at which ε a classifier instead of images is expected to reach an accuracy; empty if at none."""
    if spec.method.result != "generator":
        return ""
    try:
        method = preset(CLASSIFIER, schema, spec.epsilon)
        asked = TrainingSpec(method=method, epsilon=spec.epsilon, delta=spec.delta)
        epsilon = find_target(asked, schema, accuracy, shares).epsilon
    except DatalensError:
        return ""
    return (
        f" If labels are all you need, a private classifier is expected to reach it at ε = {decimal_text(epsilon)}: "
        f"choose {CLASSIFIER} for ⟦spec.preset⟧."
    )


def _find_least(reaches: Callable[[int], bool], most: int) -> int | None:
    """Find the least whole number from 1 that reaches; more never reaches less."""
    found = bisect.bisect_left(range(1, most + 1), True, key=reaches) + 1
    return found if found <= most else None


def _tell_units(units: int, schema: Schema) -> str:
    return f"about {schema.privacy_unit.write_count(_round_up(units))} would do"


def _round_up(units: int) -> int:
    digits: int = 10 ** max(0, len(str(units)) - 2)
    return math.ceil(units / digits) * digits
