"""DataLens: golden plans, resume, class-pure votes, and requests that cannot work."""

import numpy as np
import pytest
from pydantic import ValidationError

from datalens_service.base.errors import BudgetExceeded, CheckpointMismatch, InfeasiblePlan, InvalidSpec
from datalens_service.data.dataset import Dataset, Schema
from datalens_service.methods import DataLens
from datalens_service.methods.script import Resumed
from datalens_service.methods.voting.training_run import VoteQuestion, image_votes
from datalens_service.privacy.accounting import cost_ledger_units, limit_units
from datalens_service.privacy.budget import MemoryAccount
from datalens_service.privacy.randomness import NoiseSource
from tests.stepped_runs import SteppedRun

from . import builders
from .builders import NoNoise, advance

SIDE = 8
MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)


def stripes() -> Dataset:
    return builders.stripes(count=120, side=SIDE)


def method(**changes: object) -> DataLens:
    defaults: dict = {
        "num_teachers": 12, "images_per_step": 4, "top_k": 8, "steps": 5, "teacher_batch": 6,
        "teacher_warmup_steps": 2, "z_dim": 4, "threshold": "none",
    }  # fmt: skip
    return DataLens(**(defaults | changes))


def start(chosen: DataLens, epsilon: float = 8.0, resumed: Resumed | None = None) -> tuple[SteppedRun, MemoryAccount]:
    units = limit_units(epsilon, 1e-3)
    return builders.start(chosen, stripes(), units, resumed=resumed), MemoryAccount(units)


def finish(training_run: SteppedRun, account: MemoryAccount, noise: object = None) -> np.ndarray:
    return advance(training_run, account, noise=noise).result().sample(20, seed=1)[0]


def state(training_run: SteppedRun) -> dict:
    """Of a checkpoint before the next release."""
    return dict(training_run.begin().checkpoint())


@pytest.mark.parametrize(
    ("settings", "epsilon", "steps"),
    [({"top_k": 200, "noise_stddev": 5000}, 1.0, 149), ({"top_k": 300, "noise_stddev": 800}, 10.0, 142)],
)
def test_the_authors_settings_allow_the_golden_number_of_steps(settings, epsilon, steps):
    plan = DataLens(**settings).plan(MNIST, limit_units(epsilon, 1e-5))
    assert (plan.steps, plan.images) == (steps, 15 * steps)
    each = plan.releases[0].mechanism.cost()
    assert plan.cost() <= limit_units(epsilon, 1e-5) < plan.cost() + each, "the next step is refused"


def test_named_steps_get_the_noise_the_budget_pays_for():
    units = limit_units(1.0, 1e-5)
    votes = DataLens(steps=100).plan(MNIST, units).releases[0]
    assert votes.count == 100
    quieter = cost_ledger_units(4 * 200, votes.mechanism.noise_stddev - 1, 15 * 100)
    assert votes.cost() <= units < quieter


def test_both_named_is_the_smaller_run():
    units = limit_units(1.0, 1e-5)
    assert DataLens(noise_stddev=5000, steps=10).plan(MNIST, units).steps == 10
    assert DataLens(noise_stddev=5000, steps=1000).plan(MNIST, units).steps == 149


@pytest.mark.parametrize("changes", [{}, {"warm_start": "moments"}, {"student": "class_networks"}])
def test_resume_from_a_checkpoint_repeats_the_run(changes):
    chosen = method(**changes, student_averaging=0.5)
    training_run, account = start(chosen)
    advance(training_run, account, noise=NoNoise(), last=training_run.begin(account).plan.steps - 2)
    resumed, fresh = start(chosen, resumed=Resumed(training_run.steps - 2, state(training_run)))
    whole = finish(training_run, account, NoNoise())
    np.testing.assert_array_equal(whole, finish(resumed, fresh, NoNoise()))
    if chosen.warm_start is not None:
        began, went_on = (one.outcome().start.tensors for one in (training_run, resumed))
        assert all(np.array_equal(began[name], went_on[name]) for name in began)


def test_teachers_in_closed_form_have_no_state_and_replay_the_stored_sums():
    chosen = method(teacher="kernel", student="class_networks")
    training_run, account = start(chosen)
    whole = finish(training_run, account)
    assert state(training_run) == {}
    charges = list(account.charges)
    again, _ = start(chosen)
    np.testing.assert_array_equal(whole, finish(again, account))
    assert account.charges == charges
    trained, other = start(method(student="class_networks"))
    trained.step(0, other, NoNoise())
    with pytest.raises(CheckpointMismatch, match="trained"):
        advance(start(chosen, resumed=Resumed(1, state(trained)))[0], account)


def test_state_is_empty_while_replaying_is_cheap():
    training_run, account = start(method(warm_start="moments"))
    advance(training_run, account, 3, noise=NoNoise())
    assert state(training_run) == {}


def test_votes_may_stop_early_a_warm_start_may_not():
    for chosen, needed in ((method(warm_start="moments"), 3), (method(), 1)):
        training_run, account = start(chosen)
        training = training_run.begin(account)
        stops = [advance(training_run, account, step).begin().can_stop for step in range(training.plan.steps)]
        assert stops == [False] * needed + [True] * (training.plan.steps - needed)


def test_a_warm_start_is_where_the_votes_begin():
    training_run, account = start(method(warm_start="moments"), epsilon=50.0)
    advance(training_run, account, 3)
    before = training_run.outcome().start.sample(400, seed=2)[0].astype(int)
    student = training_run.result().sample(400, seed=2)[0].astype(int)
    assert np.abs(before.mean(axis=0) - student.mean(axis=0)).max() < 20, "the same distribution"
    finish(training_run, account)
    np.testing.assert_array_equal(before, training_run.outcome().start.sample(400, seed=2)[0])


def test_class_pure_teachers_vote_on_their_class_only():
    training_run, _ = start(method(shards="class_pure"))
    student = training_run.local("student")
    question = VoteQuestion(*student.propose("latent", 0), 2, False, None)
    blocks = list(training_run.vault(student._shards)._teachers().votes(image_votes, question).blocks)
    assert sum(len(block.gradients) for block in blocks) == 12
    assert question.labels.tolist() == [0, 0, 1, 1]
    teachers = 0
    for block in blocks:
        assert block.images == (slice(0, 2) if teachers < 6 else slice(2, 4))
        assert block.gradients.shape[1:] == (2, SIDE * SIDE)
        assert block.gradients.any()
        teachers += len(block.gradients)


def test_the_budget_ends_the_votes_not_the_job():
    training_run, account = start(method())
    account.limit_units = method().plan(stripes().schema, account.limit_units).cost() // 2
    steps = training_run.begin(account).plan.steps
    affordable = account.limit_units // (account.limit_units * 2 // steps)
    advance(training_run, account, affordable)
    with pytest.raises(BudgetExceeded):
        training_run.step(affordable, account, NoiseSource())
    assert 0 < affordable < steps
    assert training_run.result().sample(2)[0].shape == (2, SIDE, SIDE, 1)


@pytest.mark.parametrize("kind", [{}, {"teacher": "kernel"}, {"teacher": "kernel", "student": "class_networks"}])
def test_without_noise_votes_brighten_the_right_half(kind):
    """The run learns at all: after votes without noise each class is brighter on its own side."""
    chosen = method(
        shards="class_pure", num_teachers=10, images_per_step=20, steps=150, top_k=32, teacher_batch=12,
        student_learning_rate=2e-3, **kind,
    )  # fmt: skip
    training_run, account = start(chosen, epsilon=100.0)
    finish(training_run, account, NoNoise())
    images, labels = training_run.result().sample(100, seed=3)
    above = images[:, :4].mean(axis=(1, 2, 3)) - images[:, 4:].mean(axis=(1, 2, 3))
    assert above[labels == 0].mean() > above[labels == 1].mean() + 20


def test_requests_that_cannot_work_are_refused():
    units = limit_units(1.0, 1e-5)
    schema = stripes().schema
    for changes, message in [
        ({"num_teachers": 121}, "at most 120"),
        ({"top_k": 65}, "coordinates"),
        ({"shards": "class_pure", "num_teachers": 11}, "multiples of 2"),
        ({"shards": "class_pure", "images_per_step": 3}, "multiples of 2"),
        ({"vote_basis": "dct", "vote_dimensions": 65}, "vote_dimensions"),
    ]:
        with pytest.raises(InvalidSpec, match=message):
            method(**changes).plan(schema, units)
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        method(noise_stddev=100).plan(schema, 10)
    for changes in ({"top_k": 65, "vote_basis": "dct"}, {"threshold": 0.0}, {"threshold": 1.5}, {"sigma": 3}):
        with pytest.raises(ValidationError):
            method(**changes)


@pytest.mark.parametrize(
    ("flat", "nested"),
    [
        ({"top_k": 7}, {"votes": {"name": "topagg", "top_k": 7}}),
        ({"votes": "klevel", "levels": 4}, {"votes": {"name": "klevel", "levels": 4}}),
        (
            {"votes": "count_sketch", "sketch_rows": 3, "sketch_columns": 9},
            {"votes": {"name": "count_sketch", "rows": 3, "columns": 9}},
        ),
        ({"teacher": "kernel", "teacher_batch": 3}, {"teacher": {"name": "kernel", "batch": 3}}),
        (
            {"teacher": "conv", "teacher_steps": 1, "teacher_warmup_steps": 4, "teacher_learning_rate": 0.01},
            {"teacher": {"name": "conv", "steps": 1, "warmup_steps": 4, "learning_rate": 0.01}},
        ),
        ({"levels": 4, "sketch_rows": 3}, {}),
        ({"top_k": 7, "votes": {"name": "topagg", "top_k": 9}}, {"votes": {"name": "topagg", "top_k": 7}}),
    ],
    ids=str,
)
def test_short_names_of_parameters_mean_the_same(flat, nested):
    assert DataLens.model_validate(flat) == DataLens.model_validate(nested)


@pytest.mark.parametrize("votes", ["majority", {"name": "topagg", "levels": 4}, {"top_k": 4}, 3])
def test_votes_of_no_kind_are_refused(votes):
    with pytest.raises(ValidationError, match="votes"):
        DataLens.model_validate({"votes": votes, "top_k": 8})
