"""Bugs of sampled batches, of their account and of their price (specification of private classifiers, section 8.4)."""

import math
from typing import Any

import numpy as np
from sqlalchemy import delete

from datalens_service.mechanisms import Mechanism
from datalens_service.mechanisms.unit_records import UnitVault
from datalens_service.methods.descent import dp_sgd_run as dp_sgd
from datalens_service.methods.descent.sampled_gradients import SampledRun
from datalens_service.privacy import accounting, poisson_sampling
from datalens_service.privacy.accounting import NeighboringRelation
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource, TrainingRandomness
from datalens_service.store.ledger import account, ledger
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.schema.tables import AggregateRow

from . import detect_sampling
from .plant import around, plant, replaces


@around("coins from the seed of training", "R7", UnitVault, "answer")
def coins_are_seeded(answer, self, function, released, batch=None):
    """Who is in a batch follows from the public seed of training."""
    if batch is not None:
        self.step_of_coins = getattr(self, "step_of_coins", -1) + 1
        rng = np.random.default_rng(TrainingRandomness(0).seed("batch") + self.step_of_coins)
        batch = rng.random(len(batch)) < 1 / len(batch)
    return answer(self, function, released, batch)


@replaces("batches of a fixed size priced as sampled", "R7", NoiseSource, "coins")
def batches_have_a_fixed_size(self, count, numerator):
    """As many units as expected, drawn without replacement."""
    chosen = np.random.default_rng().permutation(count) < round(count * numerator / 2**53)
    return np.asarray(chosen)


@plant("a shuffled loader priced as sampled", "R7")
def batches_come_from_a_shuffled_loader(patch):
    """Every unit once in a pass, in random order, priced as if drawn by coins."""
    waiting: list[int] = []

    def shuffled(self: NoiseSource, count: int, numerator: int) -> Booleans:
        size = round(count * numerator / 2**53)
        if len(waiting) < size:
            waiting[:] = np.random.default_rng().permutation(count).tolist()
        batch = np.zeros(count, dtype=bool)
        batch[[waiting.pop() for _ in range(size)]] = True
        return batch

    patch.setattr(NoiseSource, "coins", shuffled)


@around("batches drawn until one is not empty", "R7", NoiseSource, "coins")
def batches_are_drawn_until_one_is_not_empty(coins, self, count, numerator):
    """A step without a gradient looks like a waste."""
    batch = coins(self, count, numerator)
    while not batch.any():
        batch = coins(self, count, numerator)
    return batch


@around("empty batches without noise", "R7", Mechanism, "noisy_sum")
def empty_batches_are_skipped(noisy_sum, self, contributions, batch, noise):
    """Nothing was summed, so nothing needs noise."""
    given = list(contributions)
    return noisy_sum(self, given, batch, noise) if batch.any() else self.exact_sum(given)


@plant("sums divided by the realised batch", "R4")
def sums_are_divided_by_the_realised_batch(patch):
    """The mean over the units that came, as a data loader has it."""
    answer, apply_gradient = UnitVault.answer, dp_sgd.Descent._apply_gradient
    came: list[int] = []

    def counted(self: Any, function: Any, released: Any, batch: Booleans | None = None) -> Any:
        came[:] = [] if batch is None else [max(1, int(batch.sum()))]
        return answer(self, function, released, batch)

    def applied(self: dp_sgd.Descent, gradient: Any) -> None:
        apply_gradient(self, gradient * self._divisor / (came[0] if came else self._divisor))

    patch.setattr(UnitVault, "answer", counted)
    patch.setattr(dp_sgd.Descent, "_apply_gradient", applied)


@replaces("sampling probability rounded up", "R12", (poisson_sampling, detect_sampling), "choose_numerator")
def probabilities_are_rounded_up(batch, num_units):
    """More units come than were paid for."""
    return -((-batch << 53) // num_units)


@replaces("slack not taken from δ", "R10", accounting, "delta_beside")
def slack_is_dropped_from_delta(slack, delta):
    """Units are converted at the whole δ."""
    return delta


@replaces("slack of a second job not added", "R39", ledger, "hold_for_slack")
def slack_of_a_second_job_is_not_added(account):
    """The account holds for the larger slack instead of for both."""
    slack = max(account.reserved_slack, account.charged_slack) and 5 * 10**11
    account.held_for_slack = accounting.ledger_units_held_for_slack(slack, account.epsilon, account.delta)


@replaces("blocks charged step by step, the rest returned", "R45", JobAccount, "charge_draw")
def blocks_are_charged_step_by_step(self, step, label, block):
    """Each draw pays its part, and a cancelled job gets the rest back: an odometer that stops by what it saw."""
    self.charge(step, label, block.ledger_units_zero_out // block.draws)
    return step


@around("lost draws of a block not counted", "R39", account, "count_draws")
def more_is_drawn_than_was_paid_for(count_draws, session, job_id, label):
    """Draws that a crash lost are not counted."""
    return min(1, count_draws(session, job_id, label))


@replaces("coins before the charge", "R40", Mechanism, "_charge_and_draw")
def the_charge_follows_the_first_coin(self, contributions, step, account, noise):
    """Batches are prepared before the budget is asked."""
    block = self.block()
    if block is None:
        account.charge(step, self.label(), self.cost())
        exact = self.exact_sum(contributions())
        return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
    coins = noise.coins(block.num_units, block.numerator)
    account.charge_draw(step, self.label(), block)
    return self.noisy_sum(contributions(coins), coins, noise)


@plant("a lost draw is repeated with its coins", "R7")
def a_redraw_has_the_same_coins(patch):
    """A step whose noisy sum was lost in a crash is drawn again for the batch that it had."""
    charge_and_draw = Mechanism._charge_and_draw
    batches: dict[tuple[Any, int], Booleans] = {}

    def again(self: Mechanism, contributions: Any, step: int, account: Any, noise: NoiseSource) -> Integers:
        block = self.block()
        if block is None:
            return charge_and_draw(self, contributions, step, account, noise)
        account.charge_draw(step, self.label(), block)
        coins = batches.setdefault((account, step), noise.coins(block.num_units, block.numerator))
        return self.noisy_sum(contributions(coins), coins, noise)

    patch.setattr(Mechanism, "_charge_and_draw", again)


@around("sums forgotten before the state is durable", "R41", JobAccount, "advance")
def sums_are_forgotten_before_the_state_is_kept(advance, self, step, *state):
    """Old sums are deleted first, in a transaction of their own: a crash in between leaves neither."""
    with self._database.transaction() as session:
        session.execute(delete(AggregateRow).where(AggregateRow.job_id == self._job_id, AggregateRow.step < step))
    advance(self, step, *state)


_TRAIN_AND_TEST = 7 / 6


@around("units of the test split counted for the price", "R10", PoissonSampling, "priced")
def units_of_the_test_split_are_counted(priced, multiplier, *, num_units, numerator, draws, slack):
    """The price takes q from all images of an upload, the coins from those that are trained on."""
    fewer = round(numerator / _TRAIN_AND_TEST)
    block = priced(multiplier, num_units=num_units, numerator=fewer, draws=draws, slack=slack)
    return block.model_copy(update={"numerator": numerator})


@around("as many draws paid for as passes", "R10", SampledRun, "draws")
def passes_are_taken_for_steps(draws, self):
    """As many draws are paid for as there are passes over the units."""
    return math.ceil(self.steps * self.batch / self.num_units) + draws(self) - self.steps


@around("draws priced as passes", "R10", poisson_sampling, "dominated_ledger_units")
def passes_are_priced_for_steps(dominated_ledger_units, multiplier, numerator, draws, slack, relation):
    """All draws are allowed, and the price is that of the passes, wherever it is computed."""
    return dominated_ledger_units(multiplier, numerator, max(1, draws * numerator >> 53), slack, relation)


@around(
    "a replaced unit of a sampled run priced like an emptied one", "R10", poisson_sampling, "dominated_ledger_units"
)
def replacing_costs_as_much_as_emptying(dominated_ledger_units, multiplier, numerator, draws, slack, _relation):
    """The figure for replaced units is that of emptied ones."""
    return dominated_ledger_units(multiplier, numerator, draws, slack, NeighboringRelation.ZERO_OUT)


@plant("discrete noise priced as continuous", "R12")
def discrete_noise_is_priced_as_continuous(patch):
    """σ² instead of σ² − 9, for releases on all records."""
    patch.setattr(accounting, "SMOOTHING_VARIANCE", 0)


@plant("discrete noise of sampled runs priced as continuous", "R12")
def sampled_noise_is_priced_as_continuous(patch):
    """The same for sampled ones."""
    patch.setattr(poisson_sampling, "SMOOTHING_VARIANCE", 0)
