"""Prices of specs, and what to expect of them, which a service remembers.

Both follow from a spec and a schema, which are public, so how soon an answer comes tells nothing of records.
"""

from functools import lru_cache
from typing import Final, NamedTuple

from datalens_service.base.errors import InvalidDelta
from datalens_service.base.parsing import decimal_text
from datalens_service.base.wording import Voice, current_voice, spoken_to
from datalens_service.data.dataset import Schema
from datalens_service.methods import Plan
from datalens_service.planning.expectations import Shares, compare, expect
from datalens_service.planning.expected_results import Comparison, Expectation
from datalens_service.planning.machine import measure_machine
from datalens_service.planning.phases import expect_phases
from datalens_service.planning.requested_spec import RequestedSpec
from datalens_service.spec import PlanSummary, TrainingSpec

_REMEMBERED: Final = 64


class Price(NamedTuple):
    """The price of a spec, its plan, and the spec with its method and δ filled in."""

    spec: TrainingSpec
    plan: Plan
    summary: PlanSummary


class Prices:
    """The latest prices and expectations of a process."""

    def __init__(self) -> None:
        self._price = lru_cache(_REMEMBERED)(_price)
        self._foresee = lru_cache(_REMEMBERED)(_foresee)

    def price(self, spec: TrainingSpec | RequestedSpec, schema: Schema, delta: float) -> Price:
        """Price a spec at the δ of an account.

        Raises:
            InvalidDelta: The spec names another δ.
            InvalidSpec: The method does not fit the schema, or ε pays for no step.
        """
        # Models are equal whether or not a member was named, but a method may fill in what was left out.
        return self._price(spec.model_dump_json(exclude_unset=True), spec, schema, delta)

    def foresee(self, spec: TrainingSpec, schema: Schema, shares: Shares = None) -> tuple[Expectation, Comparison]:
        """Return what to expect of a job on a machine as fast as this one, and of other methods at its ε.

        Args:
            shares: Declared frequencies of the classes.
        """
        return self._foresee(spec, schema, shares and tuple(shares), current_voice())


def _price(_stated: str, spec: TrainingSpec | RequestedSpec, schema: Schema, delta: float) -> Price:
    resolved = _with_delta(spec.resolve(schema) if isinstance(spec, RequestedSpec) else spec, delta)
    plan = resolved.plan(schema)
    summary = resolved.summarize(plan, schema)
    return Price(resolved, plan, summary.model_copy(update={"phase_seconds": expect_phases(resolved, schema)}))


def _with_delta(spec: TrainingSpec, delta: float) -> TrainingSpec:
    """Give the request the δ of its account: statements at different δ do not add up."""
    if spec.delta not in (None, delta):
        kept = decimal_text(delta)
        raise InvalidDelta(f"The budget of this data set is kept at δ = {kept}; name that one or leave it out.")
    return spec.model_copy(update={"delta": delta})


def _foresee(spec: TrainingSpec, schema: Schema, shares: Shares, voice: Voice) -> tuple[Expectation, Comparison]:
    asked = (spec, schema, measure_machine(), shares)
    with spoken_to(voice):
        return expect(*asked), compare(*asked)
