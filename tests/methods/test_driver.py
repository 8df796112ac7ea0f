"""The driver of a run: a script is sent released values alone, and whatever else happens passes it by."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from datalens_service.base.errors import BudgetExceeded, ContributionFailed
from datalens_service.mechanisms import PlannedRelease, VectorSum
from datalens_service.mechanisms.moments import GroupedVectors
from datalens_service.mechanisms.private_records import PrivateRecords, Rows, WallBroken
from datalens_service.methods import Moments
from datalens_service.methods.base import Method, Plan
from datalens_service.methods.script import Ask, Outcome, RunInputs, Script, as_start
from datalens_service.models.generators.generator import Generator
from datalens_service.privacy.budget import MemoryAccount
from tests.stepped_runs import SteppedRun

from .builders import advance, stripes

SUM = VectorSum(num_groups=1, dimensions=1, noise_stddev=20_000)
LOUDER = SUM.model_copy(update={"noise_stddev": 40_000})
PLAN = Plan(releases=(PlannedRelease(mechanism=SUM, count=3),))
BRANCHES = Plan(
    releases=PLAN.releases[:0],
    branches={
        "quiet": (PlannedRelease(mechanism=SUM, count=2),), "loud": (PlannedRelease(mechanism=LOUDER),)
    },
)  # fmt: skip
HEARD: list[Any] = []


def zeros(rows: Rows, _released: object) -> GroupedVectors:
    return GroupedVectors(np.zeros((len(rows.labels), 1)), np.zeros(len(rows.labels), dtype=np.int64), rows.units)


def raises(rows: Rows, _released: object) -> GroupedVectors:
    raise FloatingPointError(float(rows.values.mean()))


def model(made: int = 0) -> Generator:
    return Generator("gaussian", stripes().schema, {}, {"basis": np.full((1, 1), made, dtype=np.float32)})


class Scripted(Method):
    """Asks three times; what it asks for second is for a test to say."""

    facts = replace(Moments.facts, title="Scripted")
    name: Literal["scripted"] = "scripted"
    second: Literal["zeros", "raises", "louder"] = "zeros"

    def plan(self, schema: Any, ledger_units: int) -> Plan:
        return PLAN

    def run(self, plan: Plan, records: PrivateRecords, inputs: RunInputs) -> Script:
        HEARD.clear()
        for number in range(3):
            odd = number == 1
            mechanism = LOUDER if odd and self.second == "louder" else SUM
            contribution = raises if odd and self.second == "raises" else zeros
            try:
                so_far = None if number < 1 else lambda made=number: Outcome(model(made))
                HEARD.append((yield Ask(records, mechanism, contribution, None, so_far)).shape)
            except Exception as error:  # noqa: BLE001 (a step that is skipped where it fails)
                HEARD.append(error)
        return Outcome(model(3))


def test_a_script_is_sent_what_was_released_and_returns_what_it_made_of_it() -> None:
    run, account = SteppedRun(Scripted(), PLAN, stripes()), MemoryAccount(PLAN.cost())
    assert advance(run, account).result().tensors["basis"] == 3
    assert HEARD == [(1, 2)] * 3
    assert [step for step, _, _ in account.charges] == [0, 1, 2]


def test_a_script_catches_nothing_that_a_contribution_raises() -> None:
    """It would skip the step, and what it releases next would tell whether it did."""
    run, account = SteppedRun(Scripted(second="raises"), PLAN, stripes()), MemoryAccount(PLAN.cost())
    with pytest.raises(ContributionFailed) as raised:
        advance(run, account)
    assert HEARD == [(1, 2)]
    assert account.charged_units == 2 * SUM.cost()
    assert (raised.value.__cause__, raised.value.__context__) == (None, None)
    with pytest.raises(ContributionFailed):
        run.step(1, account)
    assert HEARD == [(1, 2)]


def test_a_script_asks_for_nothing_that_was_not_planned() -> None:
    run, account = SteppedRun(Scripted(second="louder"), PLAN, stripes()), MemoryAccount(PLAN.cost())
    with pytest.raises(WallBroken, match="of its plan"):
        advance(run, account)
    assert account.charged_units == SUM.cost()
    longer = SteppedRun(Scripted(), Plan(releases=(PlannedRelease(mechanism=SUM, count=2),)), stripes())
    with pytest.raises(WallBroken, match="of its plan"):
        advance(longer, MemoryAccount(PLAN.cost()))


def test_a_budget_that_ends_leaves_what_the_script_has_so_far() -> None:
    run, account = SteppedRun(Scripted(), PLAN, stripes()), MemoryAccount(2 * SUM.cost())
    with pytest.raises(BudgetExceeded):
        advance(run, account)
    assert run.begin().can_stop
    assert run.result().tensors["basis"] == 2


@pytest.mark.parametrize(("mechanism", "branch"), [(SUM, "quiet"), (LOUDER, "loud")])
def test_the_branch_is_the_one_whose_release_is_asked_for(mechanism: VectorSum, branch: str) -> None:
    run = SteppedRun(Scripted(), BRANCHES, stripes())
    training = run.begin()
    assert (training.branch, training.plan) == ("", BRANCHES)
    training._follow(Ask(PrivateRecords(stripes().schema), mechanism, zeros, None))
    assert (training.branch, training.plan) == (branch, BRANCHES.along(branch))


def test_what_a_warm_start_has_on_the_way_is_handed_out_as_a_start() -> None:
    script = as_start(Scripted().run(PLAN, PrivateRecords(stripes().schema), None))
    assert next(script).so_far is None
    outcome = script.send(np.zeros((1, 2))).so_far()
    assert outcome.model is outcome.start
    script.send(np.zeros((1, 2)))
    with pytest.raises(StopIteration) as ended:
        script.send(np.zeros((1, 2)))
    assert (ended.value.value.model.tensors["basis"], ended.value.value.start) == (3, None)
