"""What a plan costs that has branches: the dearest, in units and in slack by themselves."""

import pytest

from datalens_service.mechanisms import GradientSum, VectorSum
from datalens_service.mechanisms.planned_release import PlannedRelease
from datalens_service.methods import Plan
from datalens_service.methods.descent.sampled_gradients import SampledRun, summarize_sampling
from datalens_service.privacy.accounting import Charge, NeighboringRelation
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV

SUM = VectorSum(num_groups=1, dimensions=2, noise_stddev=5000)
COUNT, MANY = PlannedRelease(mechanism=SUM), PlannedRelease(mechanism=SUM, count=90)
GRADIENTS = GradientSum(dimensions=3, clip_norm=1.0, noise_stddev=MAXIMUM_NOISE_STDDEV)
(SAMPLED,) = SampledRun(400, 40, 5, 0.05).plan(GRADIENTS, 4.0, 8.0, 1e-5).releases
PLAN = Plan(releases=(COUNT,), branches={"many": (MANY, COUNT), "sampled": (SAMPLED,)})
TURNED = Plan(releases=(COUNT,), branches=dict(reversed(PLAN.branches.items())))


@pytest.mark.parametrize("plan", [PLAN, TURNED], ids=["dearest first", "dearest last"])
@pytest.mark.parametrize("relation", NeighboringRelation)
def test_units_and_slack_are_those_of_the_dearest_branch_by_themselves(
    plan: Plan, relation: NeighboringRelation
) -> None:
    many, sampled = 91 * SUM.price(1, relation).units, SAMPLED.cost(relation)
    assert plan.cost(relation) == SUM.price(1, relation).units + max(many, sampled)
    assert plan.slack == SAMPLED.slack > 0
    assert plan.charge() == Charge(plan.cost(), plan.slack)
    assert plan.steps == 92


def test_a_path_has_no_branches() -> None:
    assert PLAN.paths() == (Plan(releases=(COUNT, MANY, COUNT)), Plan(releases=(COUNT, SAMPLED)))
    assert PLAN.steps == 92
    assert PLAN.along("sampled").paths() == (PLAN.along("sampled"),)
    with pytest.raises(KeyError):
        PLAN.along("another")


def test_a_plan_without_branches_is_stored_as_before() -> None:
    plan = PLAN.along("many")
    assert set(plan.model_dump(mode="json")) == {"releases"}
    for one in (plan, PLAN):
        assert Plan.model_validate(one.model_dump(mode="json")) == one


def test_sampled_releases_of_a_branch_are_summarized() -> None:
    summary = summarize_sampling(PLAN, 1e-5)
    assert summary is not None
    assert summarize_sampling(PLAN.along("many"), 1e-5) is None
