"""Blocks of sampled releases: known figures, stated prices, probabilities rounded down, ε of slack and units."""

import math
from fractions import Fraction

import dp_accounting
import pytest
from dp_accounting.rdp import rdp_privacy_accountant

from datalens_service.base.errors import BudgetExceeded, InvalidSpec
from datalens_service.privacy.accounting import (
    Charge,
    NeighboringRelation,
    compute_slack,
    delta_beside,
    epsilon_of_charge,
    epsilon_of_ledger_units,
    ledger_units_held_for_slack,
    limit_units,
)
from datalens_service.privacy.poisson_sampling import PoissonSampling, choose_numerator, continuous_multiplier
from datalens_service.privacy.sampled import poisson_sampled_epsilon

DELTA = 1e-5
ZERO_OUT, REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE

GOLDEN = [
    (512, 60_000, 1.0, 1172, 1.662204, 2.600343, 1.923412),
    (512, 60_000, 1.6, 1000, 0.703989, 1.304720, 0.777684),
    (256, 60_000, 1.1, 2350, 0.920200, 1.543732, 1.099707),
    (4000, 60_000, 6.0, 1500, 1.712015, 3.679043, 1.864743),
    (4000, 50_000, 3.2, 2500, 5.900330, 13.157377, 6.371085),
    (2048, 60_000, 2.5, 300, 0.952662, 1.874334, 1.049585),
]
"""Expected batch, n, σ, T; ε under zero-out and replace-one by privacy loss distributions, and by Rényi divergences."""


@pytest.mark.parametrize(("batch", "n", "sigma", "steps", "zero_out", "replace_one", "renyi"), GOLDEN)
def test_golden_numbers(
    batch: int, n: int, sigma: float, steps: int, zero_out: float, replace_one: float, renyi: float
) -> None:
    probability = choose_numerator(batch, n) / 2**53
    for relation, expected in ((ZERO_OUT, zero_out), (REPLACE_ONE, replace_one)):
        assert poisson_sampled_epsilon(sigma, probability, steps, DELTA, relation) == pytest.approx(expected, abs=1e-4)
    accountant = rdp_privacy_accountant.RdpAccountant()
    sampled = dp_accounting.PoissonSampledDpEvent(batch / n, dp_accounting.GaussianDpEvent(sigma))
    accountant.compose(dp_accounting.SelfComposedDpEvent(sampled, steps))
    assert accountant.get_epsilon(DELTA) == pytest.approx(renyi, abs=1e-4)


@pytest.mark.parametrize("batch", [0, 11])
def test_batches_are_part_of_the_units(batch: int) -> None:
    with pytest.raises(InvalidSpec, match="batch"):
        choose_numerator(batch, 10)


def test_noise_multipliers_are_those_of_the_continuous_noise_rounded_down() -> None:
    multiplier = continuous_multiplier(Fraction(65_617**2), 87_410)
    assert Fraction(multiplier) ** 2 < Fraction(87_410**2 - 9, 65_617**2)
    assert multiplier == pytest.approx(87_410 / 65_617, rel=1e-8)


def block(**changes: int) -> PoissonSampling:
    fixed = {"num_units": 60_000, "numerator": choose_numerator(2048, 60_000), "draws": 303, "slack": 5 * 10**11}
    return PoissonSampling.priced(2.5, **fixed | changes)  # type: ignore[arg-type]


def test_a_stated_price_covers_what_the_draws_cost() -> None:
    priced = block()
    priced.check_price(2.5)
    priced.check_price(2.6)
    lower = {
        name: getattr(priced, name) * 999_990 // 1_000_000
        for name in ("ledger_units_zero_out", "ledger_units_replace_one")
    }
    for name, ledger_units in lower.items():
        with pytest.raises(InvalidSpec, match="are stated"):
            priced.model_copy(update={name: ledger_units}).check_price(2.5)
    for change in ({"numerator": choose_numerator(2100, 60_000)}, {"draws": 310}, {"slack": 10**11}):
        with pytest.raises(InvalidSpec, match="are stated"):
            priced.model_copy(update=change).check_price(2.5)
    with pytest.raises(InvalidSpec, match="are stated"):
        priced.check_price(2.4)


def test_epsilon_of_a_charge_is_that_of_its_units_beside_its_slack() -> None:
    charge = block(draws=300).charge()
    assert epsilon_of_charge(charge, DELTA) == epsilon_of_ledger_units(
        charge.ledger_units, delta_beside(charge.slack, DELTA)
    )
    assert epsilon_of_charge(charge, DELTA) > epsilon_of_ledger_units(charge.ledger_units, DELTA)
    assert epsilon_of_charge(charge, DELTA) == pytest.approx(0.9527, abs=1e-4)
    assert epsilon_of_charge(Charge(0, 10**14), DELTA) == math.inf
    assert Fraction(delta_beside(3, DELTA)) <= Fraction(DELTA) - Fraction(3, 10**18)
    assert delta_beside(0, DELTA) == DELTA


def test_a_slack_lowers_the_limit_by_what_it_takes_of_delta() -> None:
    slack = compute_slack(DELTA, 0.05)
    held = ledger_units_held_for_slack(slack, 1.0, DELTA)
    assert limit_units(1.0, DELTA) - held == limit_units(1.0, delta_beside(slack, DELTA))
    assert 0 < held < limit_units(1.0, DELTA) // 50
    assert ledger_units_held_for_slack(0, 1.0, DELTA) == 0
    ledger_units_held_for_slack(compute_slack(DELTA, 0.5), 1.0, DELTA)
    with pytest.raises(BudgetExceeded, match="half of its δ"):
        ledger_units_held_for_slack(compute_slack(DELTA, 0.5) + 2, 1.0, DELTA)
