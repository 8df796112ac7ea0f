"""Golden prices of DP-GAN and GS-WGAN: full passes, Poisson-sampled passes, and what a shared index costs."""

import math
from fractions import Fraction

import pytest

from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum
from datalens_service.methods import DpSgd
from datalens_service.privacy import sampled
from datalens_service.privacy.accounting import (
    NeighboringRelation,
    cost_units,
    epsilon_of_units,
    limit_units,
    smallest_noise_stddev,
)
from datalens_service.privacy.dominance import dominates, dominating_units, poisson_gaussian_curve
from datalens_service.privacy.sampled import LOSS_INTERVAL, poisson_sampled_epsilon

DELTA = 1e-5
GRID = 2**14
ZERO_OUT = NeighboringRelation.ZERO_OUT
MNIST = Schema(channels=1, height=28, width=28, class_names=tuple("0123456789"), num_units=60_000)


@pytest.mark.parametrize(
    ("epsilon", "steps", "stddev"),
    [
        (1.0, 600, 1_497_194),
        (10.0, 600, 200_618),
        (1.0, 200, 864_406),
        (1.0, 1000, 1_932_869),
        (1.0, 3000, 3_347_827),
        (10.0, 200, 115_827),
        (10.0, 1000, 258_997),
        (10.0, 3000, 448_595),
    ],
)
def test_full_passes_get_the_golden_noise_on_a_grid_of_16384(epsilon: float, steps: int, stddev: int) -> None:
    limit = limit_units(epsilon, DELTA)
    assert smallest_noise_stddev(GRID**2, steps, limit) == stddev
    # The product's rows are rounded to nearest on a finer grid: √d/2 steps longer, and as noisy for their length.
    plan = DpSgd(architecture="linear", steps=steps).plan(MNIST, limit)
    (release,) = plan.releases
    assert isinstance(release.mechanism, GradientSum)
    assert release.mechanism.radius == 2**16 + math.isqrt(7850) // 2 + 1
    assert release.mechanism.noise_stddev / release.mechanism.radius == pytest.approx(stddev / GRID, rel=2e-5)


@pytest.mark.parametrize(
    ("stddev", "units", "replace_one"),
    [(1_497_194, 119_752_261_178, 2.154676), (200_618, 6_669_604_563_249, 24.388852)],
)
def test_full_passes_cost_the_golden_units_a_step(stddev: int, units: int, replace_one: float) -> None:
    assert cost_units(GRID**2, stddev) == units
    assert epsilon_of_units(600 * cost_units(4 * GRID**2, stddev), DELTA) == pytest.approx(replace_one, abs=1e-6)


@pytest.mark.parametrize(
    ("multiplier", "probability", "steps", "epsilon", "tolerance"),
    [
        (1.0, 128 / 60_000, 450_000, 9.2786, 1e-3),
        (5.0, 128 / 60_000, 325_000, 0.9139, 1e-3),
        (4.0455, 1 / 30, 1000, 1.0, 1e-3),
        # GS-WGAN as its accountant counts: every image of a batch has an index of its own.
        (1.07, 1 / 1000, 640_000, 4.1175, 0.005 * 4.1175),
    ],
)
def test_sampled_passes_have_the_golden_epsilon(
    multiplier: float, probability: float, steps: int, epsilon: float, tolerance: float
) -> None:
    found = poisson_sampled_epsilon(multiplier, probability, steps, DELTA, ZERO_OUT)
    assert found == pytest.approx(epsilon, abs=tolerance)


def test_one_index_for_all_images_of_a_batch_costs_eighty_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """GS-WGAN as its code draws: one critic for 32 images, whose gradients may all agree."""
    monkeypatch.setattr(sampled, "LOSS_INTERVAL", 1e-3)
    losses = sampled.poisson_sampled_losses(1.07 / math.sqrt(32), 1 / 1000, 20_000, ZERO_OUT)
    assert losses.get_epsilon_for_delta(DELTA) == pytest.approx(329.42, rel=0.005)


@pytest.mark.parametrize(
    ("multiplier", "probability", "steps", "mu", "epsilon"),
    [(4.0455, 1 / 30, 1000, 0.26917, 1.0046), (0.8388, 1 / 30, 1000, 2.1023, 10.633)],
)
def test_sampled_passes_need_the_golden_mu(
    multiplier: float, probability: float, steps: int, mu: float, epsilon: float
) -> None:
    """Golden values hold at a slack of 1e-9, which the product's allowance for chords between knots nearly uses up."""
    curve = poisson_gaussian_curve(multiplier, probability, steps, ZERO_OUT)
    chords = math.expm1(LOSS_INTERVAL) ** 2 / (8 * mu * math.sqrt(2 * math.pi))
    slack = Fraction(1e-9 + 1e-11 + chords)
    assert dominates(1.0001 * mu, curve, slack)
    assert not dominates(0.998 * mu, curve, slack)
    # What the product charges at its own, larger slack is no more, but for the price of the slack itself.
    units = dominating_units(curve, Fraction(1, 10**6))
    assert math.sqrt(units / 1e15) <= mu
    assert epsilon_of_units(math.ceil(1e15 * mu**2), DELTA - 1e-9) == pytest.approx(epsilon, rel=1e-3)
