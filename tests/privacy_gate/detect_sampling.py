"""Detectors on sampled batches: coins, batches, divisors, and what a whole run is charged."""

import contextlib
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy import stats

from datalens_service.base.errors import BudgetExceeded
from datalens_service.data.dataset import Dataset, Schema, Split
from datalens_service.mechanisms import GradientSum
from datalens_service.methods import DpSgd, Plan
from datalens_service.privacy import accounting
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.budget import MemoryAccount, UnchargedAccount
from datalens_service.privacy.poisson_sampling import PoissonSampling, choose_numerator
from datalens_service.privacy.randomness import Integers, NoiseSource
from datalens_service.privacy.sampled import poisson_sampled_epsilon
from datalens_service.store.database import Database
from datalens_service.store.jobs import jobs, leases
from datalens_service.store.jobs.jobs import Job, JobState
from datalens_service.store.ledger import aggregates
from store.books import DELTA, EPSILON, claimed, new_dataset, new_job, read_account, state_of, verified
from tests.stepped_runs import SteppedRun

from .alarm import expect, refused
from .detect_ledger import _database
from .detect_release import Diary, Forgetful, NotedNoise

_UNITS, _SIDE, _STEPS = 8, 6, 250
_METHOD = DpSgd(
    architecture="linear", steps=3, sampling="poisson", batch=1, noise_multiplier=3.0, momentum=0.0, averaging=0.0
)
_LABEL = "network.sampled_gradient"


def sampled_runs_cost_the_golden_numbers(_rng: np.random.Generator) -> None:
    """R10, R12: the price of a block dominates its privacy loss; q is rounded down; its slack is taken from δ."""
    for batch, units in ((512, 60_000), (1, 3), (7, 9)):
        exact, numerator = Fraction(batch, units), choose_numerator(batch, units)
        expect(Fraction(numerator, 2**53) <= exact, "the probability of a coin is rounded down")
        expect(exact < Fraction(numerator + 1, 2**53), "and no further than to the next coin")
    slack = accounting.compute_slack(1e-5, 0.05)
    block = PoissonSampling.priced(
        2.5, num_units=60_000, numerator=choose_numerator(2048, 60_000), draws=300, slack=slack
    )
    expect(block.slack == 5 * 10**11, "a slack is its share of δ")
    stated = accounting.epsilon_of_charge(block.charge(), 1e-5)
    expect(0.95265 < stated < 0.95280, "a block costs the golden number")
    replaced = accounting.epsilon_of_charge(block.charge(NeighboringRelation.REPLACE_ONE), 1e-5)
    expect(1.87433 < replaced < 1.88, "and the golden number for units that are replaced")
    held = accounting.ledger_units_held_for_slack(slack, 1.0, 1e-5)
    beside = accounting.limit_units(1.0, 1e-5 * (1 - 0.05))
    expect(accounting.limit_units(1.0, 1e-5) - held <= beside + 1000, "a budget holds less beside a slack")


def sampled_plans_pay_for_their_steps(_rng: np.random.Generator) -> None:
    """R10: q, σ and T are those of the coins, the noise and the releases; ε by dp_accounting from these alone."""
    steps, batch, units, delta = 40, 2000, 60_000, 1e-5
    method = DpSgd(architecture="linear", sampling="poisson", steps=steps, batch=batch, noise_multiplier=1.5)
    schema = Schema(channels=1, height=_SIDE, width=_SIDE, class_names=("a", "b"), num_units=units)
    (release,) = method.plan_within(schema, 20.0, delta).releases
    block, mechanism = release.mechanism.block(), release.mechanism
    expect(block.draws >= release.count == steps, "every step is a draw that is paid for")
    block.check_price(mechanism.noise_multiplier())
    sigma = math.sqrt((mechanism.noise_stddev**2 - 9) / mechanism.sensitivity_squared(NeighboringRelation.ZERO_OUT))
    for relation in NeighboringRelation:
        alone = poisson_sampled_epsilon(sigma, block.numerator / 2**53, steps, delta, relation)
        stated = accounting.epsilon_of_charge(block.charge(relation), delta)
        expect(alone <= stated <= 1.2 * alone, "a plan states no less than its steps cost alone")
    expect(block.numerator == (batch << 53) // units, "the probability of a coin is the batch over all units")


def coins_fall_after_the_charge(_rng: np.random.Generator) -> None:
    """R40: charge, coins, noise, store; a refused charge draws no coin, and an empty batch all the same its noise."""
    events: list[str] = []
    training_run, plan = _started(events=events)
    training_run.step(0, Diary(plan.cost(), events), NotedNoise(events))
    expect(events == ["charge", "coins", "sum", "draw", "store"], "charge, coins, noise, store: in this order")
    poor: list[str] = []
    training_run, _ = _started(events=poor)
    with refused(BudgetExceeded, "a block that the budget does not cover is refused"):
        training_run.step(0, Diary(plan.cost() - 1, poor), NotedNoise(poor))
    expect(not poor, "a refused block draws no coin and reads no record")
    none: list[str] = []
    training_run, _ = _started(events=none)
    account = Diary(plan.cost(), none)
    training_run.step(0, account, NotedNoise(none, fall=np.zeros(_UNITS, dtype=bool)))
    noise = account.replay(0)
    expect(noise is not None and np.abs(noise).max() > 1000, "an empty batch gets its noise")


def batches_are_poisson_samples(_rng: np.random.Generator) -> None:
    """R7: every unit enters by its own coin: sizes and absences are binomial, and no seed repeats them."""
    first, second = _batches(_STEPS), _batches(20)
    expect(first[:20] != second, "coins do not follow the seed of training")
    sizes = np.array([len(batch) for batch in first])
    expect(all(len(set(batch)) == len(batch) for batch in first), "a unit is in a batch once")
    probability = 1 / _UNITS
    variance = _UNITS * probability * (1 - probability)
    _within(sizes.mean(), _UNITS * probability, math.sqrt(variance / _STEPS), "batches are as large as expected")
    spread = variance * math.sqrt(3.5 / _STEPS)
    _within(sizes.var(), variance, spread, "sizes of batches vary as those of independent coins")
    empty = (1 - probability) ** _UNITS
    deviation = math.sqrt(empty * (1 - empty) / _STEPS)
    _within(float((sizes == 0).mean()), empty, deviation, "some batches are empty, and stay so")
    counts = np.bincount([unit for batch in first for unit in batch], minlength=_UNITS)
    for count in counts:
        chance = stats.binomtest(int(count), _STEPS, probability).pvalue
        expect(chance > 1e-10, "every unit has the same chance")
    # Without replacement over a pass, a unit comes once in so many batches exactly: the variance is 0 instead of 0.9.
    passes = [sum(0 in batch for batch in first[start : start + _UNITS]) for start in range(0, _STEPS - 8, _UNITS)]
    expect(np.var(passes) > 0.05, "a unit may come twice within a pass, or not at all")


def sums_are_divided_by_the_expected_batch(_rng: np.random.Generator) -> None:
    """R4: what is done with a released sum does not depend on how many units were in the batch."""
    steps = []
    for count in (1, 3):
        training_run, plan = _started(alike=True)
        before = _flat(training_run)
        fall = np.arange(_UNITS) < count
        training_run.step(0, MemoryAccount(plan.cost()), NotedNoise([], fall=fall, silent=True))
        steps.append(_flat(training_run) - before)
    expect(torch.allclose(3 * steps[0], steps[1], rtol=1e-3, atol=1e-5), "three units move weights three times as far")


def blocks_are_charged_once_and_whole(_rng: np.random.Generator) -> None:
    """R39, R45: all units and the slack with the first draw; nothing returns; slacks of jobs add up."""
    block = _block(draws=4)
    with _database() as database:
        dataset = new_dataset(database)
        held = []
        for number in (1, 2):
            job = _job(database, dataset.id, block)
            lease = claimed(database, job.id)
            read_account(database, lease).charge_draw(0, _LABEL, block)
            expect(state_of(database, dataset.id).charged_units == number * 10**12, "the first draw pays for all")
            jobs.request_cancel(database, job.id)
            leases.finish(database, lease, JobState.CANCELLED)
            state = state_of(database, dataset.id)
            expect(state.charged_units == number * 10**12, "a cancelled block returns nothing")
            exact = accounting.epsilon_of_ledger_units(
                state.charged_units, DELTA - number * block.slack / 10**18 - 1e-20
            )
            expect(state.epsilon_spent >= exact - 1e-9, "an account states what its slack takes from δ")
            held.append(accounting.limit_units(EPSILON, DELTA) - state.remaining_units - state.charged_units)
        expect(held[1] > 1.5 * held[0] > 0, "the slack of every job is held")
        verified(database, dataset.id)
        again = _job(database, dataset.id, block)
        account = read_account(database, claimed(database, again.id))
        for _ in range(block.draws):
            account.charge_draw(0, _LABEL, block)
        with refused(BudgetExceeded, "no more is drawn than was paid for"):
            account.charge_draw(0, _LABEL, block)


def lost_draws_have_new_coins(_rng: np.random.Generator) -> None:
    """R7: a step whose noisy sum was lost in a crash is drawn anew, coins included."""
    batches = [_batches_of_a_lost_step() for _ in range(3)]
    # Two draws agree once in seven times: five of them, three times over, once in 10^10.
    fresh = any(batch != drawn[0] for drawn in batches for batch in drawn)
    expect(fresh, "a lost draw gets new coins")


def sums_stay_until_the_state_is_durable(_rng: np.random.Generator) -> None:
    """R41: a crash while a state takes the place of sums leaves the sums."""
    block = _block(draws=4)
    with _database() as database:
        job = _job(database, new_dataset(database).id, block)
        account = read_account(database, claimed(database, job.id))
        noisy = np.arange(3)
        account.charge_draw(0, _LABEL, block)
        account.store(0, noisy)
        crash = mock.patch.object(aggregates, "_pack_state", side_effect=ConnectionError)
        with crash, contextlib.suppress(ConnectionError):
            account.advance(1, {"weights": noisy})
        stored = account.replay(0)
        expect(stored is not None and np.array_equal(stored, noisy), "a sum stays until the state is durable")
        expect(account.latest() is None, "and a state that was not written is none")


def _started(
    alike: bool = False, events: list[str] | None = None, steps: int = _METHOD.steps
) -> tuple[SteppedRun, Plan]:
    """A run on eight units, all alike or each with an image of its own; gradients that are asked for are noted."""
    images = np.zeros((_UNITS, _SIDE, _SIDE, 1), dtype=np.uint8)
    if not alike:
        images[np.arange(_UNITS), np.arange(_UNITS) % _SIDE] = 200
    schema = Schema(channels=1, height=_SIDE, width=_SIDE, class_names=("a", "b"), num_units=_UNITS)
    dataset = Dataset(schema, Split(images, np.zeros(_UNITS, dtype=np.int64)), None, b"k" * 32)
    plan = _METHOD.plan_within(schema, 20.0, 1e-4)
    (release,) = plan.releases
    longer = Plan(releases=(release.model_copy(update={"count": steps}),))
    training_run = SteppedRun(_METHOD, longer, dataset)
    if events is not None:
        vault = training_run.vault(training_run.local("units"))
        answer = vault.answer

        def noted(*question: Any) -> Any:
            events.append("sum")
            return answer(*question)

        vault.answer = noted
    return training_run, plan


def _batches(steps: int) -> list[list[int]]:
    """Units whose gradients were added up, step by step."""
    training_run, _ = _started(steps=steps)
    batches: list[list[int]] = []
    with _exact_sum_noted(batches):
        for step in range(steps):
            training_run.step(step, UnchargedAccount(), NoiseSource())
    return batches


def _batches_of_a_lost_step() -> list[list[int]]:
    """As often as the block pays for, the worker dies after the draw."""
    training_run, plan = _started()
    (release,) = plan.releases
    account, batches = Forgetful(plan.cost()), list[list[int]]()
    with _exact_sum_noted(batches):
        for _ in range(release.mechanism.block().draws):
            with contextlib.suppress(ConnectionError):
                training_run.step(0, account, NoiseSource())
    return batches


@contextlib.contextmanager
def _exact_sum_noted(batches: list[list[int]]) -> Iterator[None]:
    exact_sum: Callable[..., Integers] = GradientSum.exact_sum

    def noted(self: GradientSum, contributions: Any) -> Integers:
        chunks = list(contributions)
        batches.append([unit for chunk in chunks for unit in chunk.units.tolist()])
        return exact_sum(self, chunks)

    with mock.patch.object(GradientSum, "exact_sum", noted):
        yield


def _flat(training_run: SteppedRun) -> torch.Tensor:
    return torch.cat([weight.detach().flatten().clone() for weight in training_run.local("descent")._weights()])


def _plan_of(block: PoissonSampling) -> Plan:
    mechanism = GradientSum(dimensions=3, clip_norm=1.0, noise_stddev=10**5, sampling=block)
    return Plan.model_validate({"releases": [{"mechanism": mechanism.model_dump(), "count": 2}]})


def _block(draws: int) -> PoissonSampling:
    slack, units = accounting.compute_slack(DELTA, 0.05), 10**12
    return PoissonSampling(
        num_units=20,
        numerator=2**51,
        draws=draws,
        slack=slack,
        ledger_units_zero_out=units,
        ledger_units_replace_one=units,
    )


def _job(database: Database, dataset_id: str, block: PoissonSampling) -> Job:
    return new_job(database, dataset_id, block.ledger_units_zero_out, plan=_plan_of(block))


def _within(value: float, expected: float, deviation: float, guarantee: str) -> None:
    """Six deviations: a clean run fails once in 10^8."""
    expect(abs(value - expected) <= 6 * deviation, guarantee)
