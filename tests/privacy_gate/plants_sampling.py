"""Bugs of sampled batches and of their account (specification of private classifiers, section 8.4)."""

from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete

from datalens_service.mechanisms import Mechanism
from datalens_service.mechanisms.unit_records import _UnitVault
from datalens_service.methods.descent import dp_sgd_run as dp_sgd
from datalens_service.privacy import accounting, poisson_sampling
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.privacy.randomness import Booleans, Integers, NoiseSource, TrainingRandomness
from datalens_service.store.ledger import blocks, ledger
from datalens_service.store.ledger.account import JobAccount
from datalens_service.store.tables import AccountRow, AggregateRow

from . import detect_sampling
from .plant import Plant


def coins_are_seeded(patch: pytest.MonkeyPatch) -> None:
    """Who is in a batch follows from the public seed of training."""
    answer = _UnitVault.answer

    def seeded(self: Any, function: Any, released: Any, batch: Booleans | None = None) -> Any:
        if batch is not None:
            self.step_of_coins = getattr(self, "step_of_coins", -1) + 1
            rng = np.random.default_rng(TrainingRandomness(0).seed("batch") + self.step_of_coins)
            batch = rng.random(len(batch)) < 1 / len(batch)
        return answer(self, function, released, batch)

    patch.setattr(_UnitVault, "answer", seeded)


def batches_have_a_fixed_size(patch: pytest.MonkeyPatch) -> None:
    """As many units as expected, drawn without replacement."""

    def fixed(self: NoiseSource, count: int, numerator: int) -> Booleans:
        chosen = np.random.default_rng().permutation(count) < round(count * numerator / 2**53)
        return np.asarray(chosen)

    patch.setattr(NoiseSource, "coins", fixed)


def batches_come_from_a_shuffled_loader(patch: pytest.MonkeyPatch) -> None:
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


def batches_are_drawn_until_one_is_not_empty(patch: pytest.MonkeyPatch) -> None:
    """A step without a gradient looks like a waste."""
    coins = NoiseSource.coins

    def not_empty(self: NoiseSource, count: int, numerator: int) -> Booleans:
        batch = coins(self, count, numerator)
        while not batch.any():
            batch = coins(self, count, numerator)
        return batch

    patch.setattr(NoiseSource, "coins", not_empty)


def empty_batches_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """Nothing was summed, so nothing needs noise."""
    noisy_sum = Mechanism.noisy_sum

    def sparing(self: Mechanism, contributions: Any, batch: Booleans, noise: NoiseSource) -> Integers:
        given = list(contributions)
        return noisy_sum(self, given, batch, noise) if batch.any() else self.exact_sum(given)

    patch.setattr(Mechanism, "noisy_sum", sparing)


def sums_are_divided_by_the_realised_batch(patch: pytest.MonkeyPatch) -> None:
    """The mean over the units that came, as a data loader has it."""
    answer, apply_gradient = _UnitVault.answer, dp_sgd.DpSgdRun._apply_gradient

    def counted(self: Any, function: Any, released: Any, batch: Booleans | None = None) -> Any:
        self.came = None if batch is None else max(1, int(batch.sum()))
        return answer(self, function, released, batch)

    def applied(self: dp_sgd.DpSgdRun, gradient: Any) -> None:
        apply_gradient(self, gradient * self._divisor / (self._records._vault.came or self._divisor))

    patch.setattr(_UnitVault, "answer", counted)
    patch.setattr(dp_sgd.DpSgdRun, "_apply_gradient", applied)


def probabilities_are_rounded_up(patch: pytest.MonkeyPatch) -> None:
    """More units come than were paid for."""

    def rounded_up(batch: int, num_units: int) -> int:
        return -((-batch << 53) // num_units)

    for module in (poisson_sampling, detect_sampling):
        patch.setattr(module, "choose_numerator", rounded_up)


def slack_is_dropped_from_delta(patch: pytest.MonkeyPatch) -> None:
    """Units are converted at the whole δ."""
    patch.setattr(accounting, "delta_beside", lambda slack, delta: delta)


def slack_of_a_second_job_is_not_added(patch: pytest.MonkeyPatch) -> None:
    """The account holds for the larger slack instead of for both."""

    def largest(account: AccountRow) -> None:
        slack = max(account.reserved_slack, account.charged_slack) and 5 * 10**11
        account.held_for_slack = accounting.units_held_for_slack(slack, account.epsilon, account.delta)

    patch.setattr(ledger, "hold_for_slack", largest)


def blocks_are_charged_step_by_step(patch: pytest.MonkeyPatch) -> None:
    """Each draw pays its part, and a cancelled job gets the rest back: an odometer that stops by what it saw."""

    def charge_draw(self: JobAccount, step: int, label: str, block: PoissonSampling) -> int:
        self.charge(step, label, block.units_zero_out // block.draws)
        return step

    patch.setattr(JobAccount, "charge_draw", charge_draw)


def more_is_drawn_than_was_paid_for(patch: pytest.MonkeyPatch) -> None:
    """Draws that a crash lost are not counted."""
    patch.setattr(blocks, "count_draws", lambda session, job_id, label: min(1, _draws(session, job_id, label)))


_draws = blocks.count_draws


def the_charge_follows_the_first_coin(patch: pytest.MonkeyPatch) -> None:
    """Batches are prepared before the budget is asked."""

    def early(self: Mechanism, contributions: Any, step: int, account: Any, noise: NoiseSource) -> Integers:
        block = self.block()
        if block is None:
            exact = self.exact_sum(contributions())
            account.charge(step, self.label(), self.cost())
            return exact + noise.discrete_gaussian(exact.shape, self.noise_stddev)
        coins = noise.coins(block.num_units, block.numerator)
        account.charge_draw(step, self.label(), block)
        return self.noisy_sum(contributions(coins), coins, noise)

    patch.setattr(Mechanism, "_charge_and_draw", early)


def a_redraw_has_the_same_coins(patch: pytest.MonkeyPatch) -> None:
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


def sums_are_forgotten_before_the_state_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Old sums are deleted first, in a transaction of their own: a crash in between leaves neither."""
    advance = JobAccount.advance

    def early(self: JobAccount, step: int, *state: Any) -> None:
        with self._database.transaction() as session:
            session.execute(delete(AggregateRow).where(AggregateRow.job_id == self._job_id, AggregateRow.step < step))
        advance(self, step, *state)

    patch.setattr(JobAccount, "advance", early)


PLANTS = (
    Plant("coins from the seed of training", "R7", coins_are_seeded),
    Plant("batches of a fixed size priced as sampled", "R7", batches_have_a_fixed_size),
    Plant("a shuffled loader priced as sampled", "R7", batches_come_from_a_shuffled_loader),
    Plant("batches drawn until one is not empty", "R7", batches_are_drawn_until_one_is_not_empty),
    Plant("empty batches without noise", "R7", empty_batches_are_skipped),
    Plant("sums divided by the realised batch", "R4", sums_are_divided_by_the_realised_batch),
    Plant("sampling probability rounded up", "R12", probabilities_are_rounded_up),
    Plant("slack not taken from δ", "R10", slack_is_dropped_from_delta),
    Plant("slack of a second job not added", "R39", slack_of_a_second_job_is_not_added),
    Plant("blocks charged step by step, the rest returned", "R45", blocks_are_charged_step_by_step),
    Plant("lost draws of a block not counted", "R39", more_is_drawn_than_was_paid_for),
    Plant("coins before the charge", "R40", the_charge_follows_the_first_coin),
    Plant("a lost draw is repeated with its coins", "R7", a_redraw_has_the_same_coins),
    Plant("sums forgotten before the state is durable", "R41", sums_are_forgotten_before_the_state_is_kept),
)
