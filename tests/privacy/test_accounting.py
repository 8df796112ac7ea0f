"""Golden values, an independent accountant, and directed rounding."""

import math
import random
from fractions import Fraction

import pytest

from datalens_service.base.errors import InfeasiblePlan, InvalidDelta, InvalidSpec
from datalens_service.data.dataset import Schema
from datalens_service.mechanisms import GradientSum
from datalens_service.methods import DpSgd
from datalens_service.privacy import accounting, sampled
from datalens_service.privacy.accounting import (
    NeighboringRelation,
    cost_ledger_units,
    epsilon_of_ledger_units,
    limit_units,
    smallest_noise_stddev,
)
from datalens_service.privacy.dominance import dominates, dominating_ledger_units, poisson_gaussian_curve
from datalens_service.privacy.sampled import LOSS_INTERVAL, poisson_sampled_epsilon
from privacy_gate.detect_price import exact_delta

GOLDEN_MU = {
    1e-5: {0.5: 0.14221056, 1: 0.26805112, 2: 0.50155169, 3: 0.71911744, 5: 1.12124182, 8: 1.66603060, 10: 2.00044562},
    1e-6: {0.5: 0.12410615, 1: 0.23670438, 2: 0.44833474, 3: 0.64772653, 5: 1.02035715, 8: 1.53154512, 10: 1.84813221},
    1e-7: {0.5: 0.11116445, 1: 0.21373627, 2: 0.40831980, 3: 0.59316915, 5: 0.94156456, 8: 1.42427151, 10: 1.72539640},
}


def test_golden_cost_and_limit():
    assert accounting.cost_ledger_units(4 * 200, 5000) == 32_000_011_521
    assert accounting.limit_units(1.0, 1e-5) == pytest.approx(71_851_404_654_918, rel=1e-9)


@pytest.mark.parametrize("delta", GOLDEN_MU)
def test_mu_budget_agrees_with_the_golden_table(delta):
    for epsilon, mu in GOLDEN_MU[delta].items():
        assert accounting.mu_for_epsilon(epsilon, delta) == pytest.approx(mu, abs=5e-9)


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-5, 1e-3])
@pytest.mark.parametrize("epsilon", [0.01, 0.2, 1.0, 3.0, 10.0, 40.0])
def test_conversions_bound_the_exact_curve_from_the_safe_side(epsilon, delta):
    mu = accounting.mu_for_epsilon(epsilon, delta)
    assert exact_delta(mu, epsilon) <= delta
    assert exact_delta(mu * (1 + 1e-6), epsilon) > delta, "the bound is tight"
    shown = accounting.epsilon_for_mu(mu, delta)
    assert exact_delta(mu, shown) <= delta
    assert shown == pytest.approx(epsilon, rel=1e-6)


def test_integer_ledger_never_passes_the_limit_under_random_charges():
    """Twenty thousand short sequences up to the first refusal, and long ones, against rational arithmetic."""
    rng = random.Random(7)  # noqa: S311
    limits = [accounting.limit_units(rng.uniform(0.05, 20), 1e-5) for _ in range(100)]
    for number in range(20_000):
        top_k, stddev = rng.randint(1, 900), rng.randint(100, 9000)
        cost, exact = accounting.cost_ledger_units(4 * top_k, stddev), Fraction(4 * top_k, stddev**2 - 9)
        affordable = limits[number % 100] // cost
        assert exact * affordable * 10**15 <= affordable * cost <= limits[number % 100]
    for limit in limits[:20]:
        exact, charged = Fraction(0), 0
        while True:
            top_k, stddev = rng.randint(1, 900), rng.randint(100, 9000)
            cost = accounting.cost_ledger_units(4 * top_k, stddev)
            if charged + cost > limit:
                break
            charged += cost
            exact += Fraction(4 * top_k, stddev**2 - 9)
        assert exact * 10**15 <= charged <= limit


def test_charged_delta_covers_the_lattice_sum():
    """The worst case of the discrete mechanism, summed over the lattice: k coordinates, each moved by 2."""
    top_k, stddev, epsilon = 4, 100, 1.0
    # The privacy loss of k·T coordinates shifted by 2 depends on their sum, a discrete Gaussian of k·T·σ².
    repeats = 40
    variance = top_k * repeats * stddev**2
    shift = 2 * top_k * repeats
    lattice = range(-12 * math.isqrt(variance), 12 * math.isqrt(variance))
    weights = [math.exp(-(x**2) / (2 * variance)) for x in lattice]
    moved = [math.exp(-((x - shift) ** 2) / (2 * variance)) for x in lattice]
    delta = sum(max(0.0, a - math.exp(epsilon) * b) for a, b in zip(moved, weights, strict=True)) / sum(weights)
    ledger_units = repeats * accounting.cost_ledger_units(4 * top_k, stddev)
    charged = accounting.gaussian_delta(accounting.mu_of_ledger_units(ledger_units), epsilon)
    assert charged >= delta
    assert charged == pytest.approx(delta, rel=0.05)
    # Continuous noise of the same σ: the lattice itself costs next to nothing, the margin is all in σ² − 9.
    continuous = accounting.gaussian_delta(math.sqrt(4 * top_k * repeats) / stddev, epsilon)
    assert continuous == pytest.approx(delta, rel=1e-6)


def test_small_noise_is_refused():
    with pytest.raises(InvalidSpec, match="at least 100"):
        accounting.cost_ledger_units(4, 99)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_epsilon_outside_its_range_is_refused(epsilon):
    with pytest.raises(InvalidSpec):
        accounting.mu_for_epsilon(epsilon, 1e-5)


def test_delta_policy():
    assert accounting.default_delta(60_000) == 5.54e-6
    assert accounting.default_delta(100) == 1e-5
    accounting.check_delta(1e-5, 60_000)
    for delta in (1 / 60_000, 0.5, 0.0):
        with pytest.raises(InvalidDelta):
            accounting.check_delta(delta, 60_000)


def test_smallest_noise_is_the_smallest():
    limit = accounting.limit_units(1.0, 1e-5)
    stddev = accounting.smallest_noise_stddev(800, 2245, limit)
    assert (
        accounting.cost_ledger_units(800, stddev, 2245) <= limit < accounting.cost_ledger_units(800, stddev - 1, 2245)
    )


def test_smallest_noise_over_the_whole_range():
    rng = random.Random(8)  # noqa: S311
    for _ in range(3000):
        sensitivity, queries = rng.randint(1, 10 ** rng.randint(1, 14)), rng.randint(1, 10**6)
        ledger_units = queries * rng.randint(1, 10 ** rng.randint(1, 15))
        stddev = accounting.smallest_noise_stddev(sensitivity, queries, ledger_units)
        assert accounting.cost_ledger_units(sensitivity, stddev, queries) <= ledger_units
        if stddev > accounting.MINIMUM_NOISE_STDDEV:
            assert accounting.cost_ledger_units(sensitivity, stddev - 1, queries) > ledger_units
    with pytest.raises(InfeasiblePlan, match="raise epsilon"):
        accounting.smallest_noise_stddev(800, 100, 99)


def test_display_rounds_towards_privacy():
    assert accounting.round_up(0.123401) == 0.1235
    assert accounting.round_down(0.123499) == 0.1234
    assert accounting.round_up(0.5) == 0.5


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
    ("stddev", "ledger_units", "replace_one"),
    [(1_497_194, 119_752_261_178, 2.154676), (200_618, 6_669_604_563_249, 24.388852)],
)
def test_full_passes_cost_the_golden_units_a_step(stddev: int, ledger_units: int, replace_one: float) -> None:
    assert cost_ledger_units(GRID**2, stddev) == ledger_units
    assert epsilon_of_ledger_units(600 * cost_ledger_units(4 * GRID**2, stddev), DELTA) == pytest.approx(
        replace_one, abs=1e-6
    )


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
    ledger_units = dominating_ledger_units(curve, Fraction(1, 10**6))
    assert math.sqrt(ledger_units / 1e15) <= mu
    assert epsilon_of_ledger_units(math.ceil(1e15 * mu**2), DELTA - 1e-9) == pytest.approx(epsilon, rel=1e-3)
