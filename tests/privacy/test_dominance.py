"""Sampled runs as Gaussians with a slack: known figures, the lemma as a linear program, never below the truth."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import NeighboringRelation as Relation
from dp_accounting.pld import privacy_loss_distribution as losses
from dp_accounting.pld.pld_pmf import DensePLDPmf, SparsePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy import optimize, stats

from datalens_service.base.errors import InfeasiblePlan, InvalidSpec, WorkerUnavailable
from datalens_service.privacy.accounting import (
    Charge,
    NeighboringRelation,
    epsilon_of_charge,
    epsilon_of_ledger_units,
    mu_of_ledger_units,
)
from datalens_service.privacy.dominance import (
    PrivacyCurve,
    _largest_dip,
    deltas_at_multiples,
    dominates,
    dominating_ledger_units,
    gaussian_deltas,
    poisson_gaussian_curve,
)
from datalens_service.privacy.sampled import LOSS_INTERVAL, poisson_sampled_losses
from privacy_gate.detect_price import exact_delta

UNITS, DELTA, SLACK = 60_000, 1e-5, Fraction(5, 10**7)
ZERO_OUT, REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE


@dataclass(frozen=True)
class Block:
    """A sampled run."""

    batch: int
    noise_multiplier: float
    steps: int
    relation: NeighboringRelation = ZERO_OUT

    @cache  # noqa: B019
    def curve(self) -> PrivacyCurve:
        return poisson_gaussian_curve(self.noise_multiplier, self.batch / UNITS, self.steps, self.relation)

    @cache  # noqa: B019
    def units(self) -> int:
        return dominating_ledger_units(self.curve(), SLACK)

    def losses(self) -> Any:
        return dp_accounting_losses(self.noise_multiplier, self.batch / UNITS, self.steps, self.relation)


def dp_accounting_losses(noise: float, probability: float, steps: int, relation: NeighboringRelation) -> Any:
    """By dp_accounting alone."""
    name = {ZERO_OUT: "REPLACE_SPECIAL", REPLACE_ONE: "REPLACE_ONE"}[relation]
    return losses.from_gaussian_mechanism(
        noise, sampling_prob=probability, neighboring_relation=Relation[name]
    ).self_compose(steps)


SMALL, LARGE, NOISY = Block(512, 1.6, 1000), Block(512, 1.0, 1172), Block(2048, 2.5, 300)
SHARP = Block(512, 0.7, 586)
ONE = 0.268051
"""μ of ε = 1."""


def composed_and_stated(blocks: tuple[Block, ...], gaussian_mu: float) -> tuple[float, float]:
    """ε of all runs and a Gaussian release by dp_accounting alone, and by what their units and slacks add up to."""
    together = losses.identity()
    for block in blocks:
        together = together.compose(block.losses())
    if gaussian_mu:
        relation = Relation.REPLACE_SPECIAL
        together = together.compose(losses.from_gaussian_mechanism(1 / gaussian_mu, neighboring_relation=relation))
    units = sum(block.units() for block in blocks) + math.ceil(gaussian_mu**2 * 10**15)
    charge = Charge(units, len(blocks) * int(SLACK * 10**18))
    return together.get_epsilon_for_delta(DELTA), epsilon_of_charge(charge, DELTA)


@pytest.mark.parametrize(
    ("block", "mu", "epsilon"),
    [(LARGE, 0.42597, 1.6727), (SMALL, 0.19394, 0.7040), (NOISY, 0.25567, 0.9527), (SHARP, 0.82318, 3.5092)],
)
def test_known_figures(block: Block, mu: float, epsilon: float) -> None:
    assert mu_of_ledger_units(block.units()) == pytest.approx(mu, rel=2e-4)
    assert epsilon_of_ledger_units(block.units(), DELTA - float(SLACK)) == pytest.approx(epsilon, rel=2e-4)


@pytest.mark.parametrize(("relation", "shift"), [(ZERO_OUT, 1), (REPLACE_ONE, 2)])
def test_without_sampling_it_is_the_closed_form(relation: NeighboringRelation, shift: int) -> None:
    block = Block(UNITS, 20.0, 25, relation)
    mu = mu_of_ledger_units(block.units())
    assert shift * 0.25 - 1e-5 < mu <= shift * 0.25 * (1 + 1e-6)


@pytest.mark.parametrize("block", [SMALL, LARGE, NOISY, Block(512, 1.6, 200, REPLACE_ONE)])
def test_the_gaussian_lies_above_the_curve_everywhere_up_to_the_slack(block: Block) -> None:
    """Between knots too, with a Gaussian curve of forty digits."""
    curve, mu = block.curve(), mpmath.sqrt(mpmath.mpf(block.units()) / 10**15)
    rng = np.random.default_rng(0)
    for knot in rng.integers(len(curve.knots) - 1, size=200):
        share = rng.random()
        ends = np.exp(curve.knots[knot : knot + 2])
        gamma = (1 - share) * ends[0] + share * ends[1]
        height = (1 - share) * curve.deltas[knot] + share * curve.deltas[knot + 1]
        assert height <= exact_delta(mu, mpmath.log(gamma)) + mpmath.mpf(float(SLACK))


def test_a_curve_just_above_the_slack_is_covered() -> None:
    knots = 1e-4 * np.arange(20_001)
    curve = PrivacyCurve(knots, np.where(knots < 1, 1.5e-6, 5e-7))
    mu = mpmath.sqrt(mpmath.mpf(dominating_ledger_units(curve, Fraction(1, 10**6))) / 10**15)
    last_above = float(knots[np.flatnonzero(curve.deltas > 1e-6)[-1]])
    assert exact_delta(mu, mpmath.mpf(last_above)) + mpmath.mpf(1e-6) >= mpmath.mpf(1.5e-6)


def test_a_curve_that_is_no_number_is_not_covered() -> None:
    deltas = np.full(100, 1e-9)
    deltas[40] = np.nan
    with pytest.raises(InfeasiblePlan):
        dominating_ledger_units(PrivacyCurve(1e-4 * np.arange(100), deltas), Fraction(1, 10**6))


def test_less_than_the_price_does_not_dominate() -> None:
    mu = mu_of_ledger_units(LARGE.units())
    # Neighbouring floats may round to either side.
    assert dominates((1 + 1e-12) * mu, LARGE.curve(), SLACK)
    assert not dominates(0.999 * mu, LARGE.curve(), SLACK)
    assert not dominates(mu, LARGE.curve(), SLACK / 2)


def test_more_slack_costs_fewer_units() -> None:
    prices = [dominating_ledger_units(LARGE.curve(), slack) for slack in (SLACK / 10, SLACK, 10 * SLACK)]
    assert prices == sorted(prices, reverse=True)
    assert len(set(prices)) == 3


@pytest.mark.parametrize(
    ("blocks", "gaussian_mu", "composed", "stated"),
    [
        ((SMALL, SMALL), ONE, 1.4692, 1.4939),
        ((SMALL, LARGE), 0.0, 1.8216, 1.8634),
        ((SMALL,) * 5, 0.0, 1.6626, 1.7307),
        ((LARGE, SHARP), ONE, 3.7903, 4.2234),
    ],
)
def test_known_figures_of_whole_accounts(
    blocks: tuple[Block, ...], gaussian_mu: float, composed: float, stated: float
) -> None:
    assert composed_and_stated(blocks, gaussian_mu) == (
        pytest.approx(composed, abs=2e-4), pytest.approx(stated, rel=2e-4)
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_an_account_never_states_less_than_the_composed_losses(seed: int) -> None:
    """Of random lists of runs and Gaussian releases."""
    rng = np.random.default_rng(seed)
    blocks = tuple((SMALL, LARGE, NOISY)[number] for number in rng.integers(3, size=rng.integers(1, 6)))
    truth, stated = composed_and_stated(blocks, float(rng.choice([0.05, ONE, 0.5])))
    # The slack of five runs is a quarter of δ.
    assert truth <= stated <= (1.05 if len(blocks) <= 2 else 1.1) * truth


@pytest.mark.parametrize("mu", [0.02, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("width", [1e-4, 1e-2])
def test_a_chord_lies_above_the_gaussian_curve_by_no_more_than_stated(mu: float, width: float) -> None:
    bound = _largest_dip(mu, np.array([0.0, width]))
    dips = []
    for start in np.linspace(0, 4 * mu, 40):
        ends = mpmath.exp(start), mpmath.exp(start + width)
        middle = mpmath.log((ends[0] + ends[1]) / 2)
        precise = mpmath.mpf(mu)
        chord = (exact_delta(precise, mpmath.mpf(start)) + exact_delta(precise, mpmath.mpf(start + width))) / 2
        dips.append(float(chord - exact_delta(precise, middle)))
    assert max(dips) <= bound
    assert max(dips) >= 0.8 * bound or width > mu, "the bound is nearly attained"


@pytest.mark.parametrize("mu", [0.05, 0.4, 3.0])
def test_gaussian_deltas_are_rounded_down(mu: float) -> None:
    points = np.concatenate([np.linspace(0, 8 * mu, 60), [20.0, 100.0]])
    for point, delta in zip(points, gaussian_deltas(mu, points), strict=True):
        exact = exact_delta(mpmath.mpf(mu), mpmath.mpf(point))
        assert 0 <= delta <= exact
        assert delta >= 0.999 * exact - 1e-12


@pytest.mark.parametrize("seed", range(6))
def test_the_lemma_as_a_linear_program(seed: int) -> None:
    """The closest post-processing of one pair to another is as far away as their curves are apart, and no farther."""
    rng = np.random.default_rng(seed)
    q, p = rng.dirichlet(np.full(5, 0.7), size=2)
    edges = np.concatenate([[-np.inf], np.linspace(-2, 2.5, 14), [np.inf]])
    g0, g1 = (np.diff(stats.norm.cdf(edges, loc=shift)) for shift in (0.0, float(rng.choice([0.3, 0.8]))))
    apart = max(
        hockey_stick(p, q, gamma) - hockey_stick(g1, g0, gamma) for gamma in np.concatenate([[0.0], p / q, g1 / g0])
    )
    assert closest_kernel(p, q, g1, g0) == pytest.approx(max(0.0, apart), abs=1e-7)


def hockey_stick(p: np.ndarray, q: np.ndarray, gamma: float) -> float:
    return float(np.maximum(p - gamma * q, 0).sum())


def closest_kernel(p: np.ndarray, q: np.ndarray, g1: np.ndarray, g0: np.ndarray) -> float:
    """Smallest total variation of K(g1) from p over kernels K with K(g0) = q; variables are K and (p − K(g1))₊."""
    sources, targets = len(g0), len(q)
    kernel = sources * targets
    equalities, values = np.zeros((sources + targets, kernel + targets)), np.concatenate([np.ones(sources), q])
    excess = np.zeros((targets, kernel + targets))
    for source, target in itertools.product(range(sources), range(targets)):
        column = source * targets + target
        equalities[source, column] = 1
        equalities[sources + target, column] = g0[source]
        excess[target, column] = -g1[source]
    excess[:, kernel:] = -np.eye(targets)
    cost = np.concatenate([np.zeros(kernel), np.ones(targets)])
    solved = optimize.linprog(cost, excess, -p, equalities, values, bounds=(0, None), method="highs")
    assert solved.success
    return float(solved.fun)


def test_a_run_whose_tail_is_larger_than_the_slack_is_refused() -> None:
    curve = PrivacyCurve(np.array([0.0, 1.0]), np.array([0.5, 1e-3]))
    with pytest.raises(InfeasiblePlan, match="more noise"):
        dominating_ledger_units(curve, SLACK)


@pytest.mark.parametrize("slack", [Fraction(0), Fraction(-1, 10)])
def test_slack_must_be_above_0(slack: Fraction) -> None:
    with pytest.raises(InvalidSpec, match="slack"):
        dominating_ledger_units(SMALL.curve(), slack)


@pytest.mark.parametrize("relation", NeighboringRelation)
@pytest.mark.parametrize(
    ("noise", "probability", "steps"),
    [(1.6, 0.01, 200), (20.0, 1.0, 5), (0.7, 1e-4, 2), (3.0, 0.99, 4), (50.0, 1e-7, 2)],
)
def test_a_curve_is_that_of_dp_accounting(noise, probability, steps, relation):
    epsilons = LOSS_INTERVAL * np.arange(60_000)
    ours = deltas_at_multiples(
        poisson_sampled_losses(noise, probability, steps, relation), LOSS_INTERVAL, len(epsilons)
    )
    theirs = dp_accounting_losses(noise, probability, steps, relation).get_delta_for_epsilon(epsilons)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(
    ("relation", "inverse"),
    [
        (ZERO_OUT, "_inverse_privacy_loss_remove"),
        (ZERO_OUT, "_inverse_privacy_loss_add"),
        (REPLACE_ONE, "_inverse_privacy_loss_replace"),
    ],
)
def test_another_formula_for_losses_is_refused(relation, inverse, monkeypatch):
    public = getattr(GaussianPrivacyLoss, inverse)
    monkeypatch.setattr(GaussianPrivacyLoss, inverse, lambda self, loss: public(self, loss) + 1e-4)
    with pytest.raises(WorkerUnavailable, match="not supported"):
        poisson_sampled_losses(2.0, 0.01, 10, relation)


def masses(count: int, infinity_mass: float = 0.0) -> np.ndarray:
    drawn = np.random.default_rng(count).random(count)
    return drawn / drawn.sum() * (1 - infinity_mass)


def dense(first: int, count: int, infinity_mass: float = 0.0) -> DensePLDPmf:
    return DensePLDPmf(LOSS_INTERVAL, first, masses(count, infinity_mass), infinity_mass, True)


def sparse(first: int, count: int) -> SparsePLDPmf:
    return SparsePLDPmf(dict(enumerate(masses(count), first)), LOSS_INTERVAL, 0.0, True)


@pytest.mark.parametrize(
    ("remove", "add"),
    [
        (dense(-10, 300), dense(-10, 300, 0.3)),
        (dense(-10, 300, 0.3), dense(-10, 300)),
        (dense(-200, 300), dense(-10, 300)),
        (sparse(-10, 50), sparse(5, 50)),
        (dense(7, 300), dense(40, 20)),
        (dense(-400, 300), dense(-900, 300)),
        (dense(0, 1), None),
    ],
)
def test_either_order_and_infinite_losses_count(remove, add):
    losses = PrivacyLossDistribution(remove, add)
    epsilons = LOSS_INTERVAL * np.arange(500)
    deltas = deltas_at_multiples(losses, LOSS_INTERVAL, len(epsilons))
    np.testing.assert_allclose(deltas, losses.get_delta_for_epsilon(epsilons), rtol=1e-9, atol=1e-13)


def test_masses_that_are_not_numbers_are_refused():
    losses = PrivacyLossDistribution(dense(0, 300))
    losses._pmf_remove._probs[100] = np.nan
    with pytest.raises(WorkerUnavailable, match="not supported"):
        deltas_at_multiples(losses, LOSS_INTERVAL, 9001)


def test_another_dp_accounting_is_refused(monkeypatch):
    losses = poisson_sampled_losses(2.0, 0.01, 10, NeighboringRelation.ZERO_OUT)
    public = type(losses).get_delta_for_epsilon
    monkeypatch.setattr(type(losses), "get_delta_for_epsilon", lambda self, epsilon: public(self, epsilon) + 1e-9)
    with pytest.raises(WorkerUnavailable, match="not supported"):
        deltas_at_multiples(losses, LOSS_INTERVAL, 1000)
