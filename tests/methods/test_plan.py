"""What a plan costs that has branches: the dearest, in units and in slack by themselves."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from datalens_service.base.errors import JobStopped
from datalens_service.base.progress import Phase
from datalens_service.data.dataset import Dataset, Upload
from datalens_service.mechanisms import GradientSum, PlannedRelease, VectorSum
from datalens_service.methods import (
    AnyMethod,
    Diffusion,
    Guided,
    LabelledMoments,
    LabelledPool,
    Moments,
    Plan,
    PooledMoments,
    PublicVotes,
    Scattering,
)
from datalens_service.methods.descent.sampled_gradients import SampledRun, summarize_sampling
from datalens_service.models.generators.denoiser import public_denoiser
from datalens_service.privacy.accounting import Charge, NeighboringRelation
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import MAXIMUM_NOISE_STDDEV
from datalens_service.spec import TrainingSpec
from datalens_service.training import run

from .builders import pool, stripes

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
    many, sampled = 91 * SUM.price(1, relation).ledger_units, SAMPLED.cost(relation)
    assert plan.cost(relation) == SUM.price(1, relation).ledger_units + max(many, sampled)
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


Event = tuple[Phase, int, int, int]
"""Phase, value, maximum, and charges made by then."""
FEW = Moments(subspace_dimensions=6)
METHODS: dict[str, AnyMethod] = {
    "guided": Guided(warm_start=FEW, steps=3, samples=400, epochs=2, hidden_units=8),
    "scattering": Scattering(warm_start=FEW, steps=3, samples=100, dimensions=8),
    "labelled_moments": LabelledMoments(steps=3, samples=100, dimensions=8),
    "diffusion": Diffusion(
        warm_start=FEW, steps=3, noise_multiplier=8.0, pretraining_steps=20, pretraining_samples=100, width=8, blocks=1
    ),
    "labelled_pool": LabelledPool(classifier=Scattering(warm_start=FEW, steps=3, samples=100, dimensions=8)),
    "public_votes": PublicVotes(cells=20, verbatim=False),
    "pooled_moments": PooledMoments(),
}
NEED_A_POOL = ("labelled_pool", "public_votes", "pooled_moments")


def events(name: str, stop: Callable[[Event], bool] = lambda _event: False) -> list[Event]:
    private = stripes()
    public = pool() if name in NEED_A_POOL else None
    spec = TrainingSpec(method=METHODS[name], epsilon=20.0, delta=1e-4, public_data=None if public is None else "ds_1")
    return observed(spec, private, public, stop)


def observed(spec: TrainingSpec, private: Dataset, public: Upload | None, stop: Callable[[Event], bool]) -> list[Event]:
    account, seen = MemoryAccount(spec.limit_units(private.schema)), list[Event]()

    def observe(phase: Phase, value: int, maximum: int) -> None:
        seen.append((phase, value, maximum, len(account.charges)))
        if stop(seen[-1]):
            raise JobStopped("enough")

    run(spec, private, account=account, public=public, observe=observe)
    return seen


@pytest.mark.parametrize("name", METHODS)
def test_long_work_between_releases_is_told_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_denoiser, "_STEPS", 40)
    training = [event for event in events(name) if event[0] is Phase.TRAINING]

    charges = training[-1][3]
    assert len({value for _, value, _, _ in training}) > charges + 1
    assert all(before[1] <= after[1] for before, after in pairwise(training))
    assert [made for _, value, maximum, made in training if value == maximum] == [charges]


def test_a_run_can_be_stopped_within_a_long_step() -> None:
    with pytest.raises(JobStopped):
        events("guided", lambda event: event[1] > event[3])


def test_what_was_paid_for_is_finished_whoever_asks_to_stop() -> None:
    fitting = [
        event for event in events("labelled_pool", lambda event: event[0] is Phase.FITTING) if event[0] is Phase.FITTING
    ]
    assert len(fitting) > 1
