"""The privacy part: golden values, rounding, lost charges, and the words in which it is said."""

import math
from fractions import Fraction

import pytest

from datalens_service.base.errors import LedgerCorrupt
from datalens_service.mechanisms import GradientSum, OuterProductSum, PlannedRelease, TopAgg
from datalens_service.privacy.accounting import (
    Charge,
    NeighboringRelation,
    gaussian_delta,
    stated_epsilon,
)
from datalens_service.privacy.guarantee import membership_advantage, right_guesses
from datalens_service.privacy.poisson_sampling import PoissonSampling
from datalens_service.report import phrases
from datalens_service.report.disclosures import assumptions
from datalens_service.report.privacy_statement import (
    PrivacyStatement,
    classify_epsilon,
    first_releases,
    privacy_statement,
    true_positive_rate,
)
from tests.evaluation.conftest import RELEASES, statement, votes

ZERO_OUT, REPLACE_ONE = NeighboringRelation.ZERO_OUT, NeighboringRelation.REPLACE_ONE


@pytest.mark.parametrize(
    ("mu", "advantage", "rate"),
    [
        (0.14221056, 0.0567, 0.0016),
        (0.26805112, 0.1066, 0.0024),
        (0.50155169, 0.1980, 0.0048),
        (1.12124182, 0.4249, 0.0245),
        (2.00044562, 0.6828, 0.138),
    ],
)
def test_attack_bounds_have_their_golden_values(mu, advantage, rate):
    assert advantage <= membership_advantage(mu) + 5e-5
    assert membership_advantage(mu) == pytest.approx(advantage, abs=1.01e-4)
    assert true_positive_rate(mu, 0.001) == pytest.approx(rate, abs=1.5e-4 if mu < 2 else 1e-3)


def test_attack_bounds_agree_with_the_epsilon_delta_curve():
    # δ(0) is the total variation distance, which is the largest advantage of any attack.
    for mu in (0.1, 0.7, 2.5):
        assert membership_advantage(mu) == pytest.approx(gaussian_delta(mu, 0.0), abs=1.01e-4)
        assert membership_advantage(mu) >= 2 * (0.5 * (1 + math.erf(mu / 2 / math.sqrt(2)))) - 1
    assert true_positive_rate(0.0, 0.01) == pytest.approx(0.01, abs=1.01e-4)
    assert (membership_advantage(60.0), true_positive_rate(60.0, 0.01)) == (1.0, 1.0)


def authors_votes(count: int) -> PrivacyStatement:
    made = (PlannedRelease(mechanism=votes(images=1), count=count),)
    ledger_units = made[0].cost()
    given = {"epsilon_limit": 1.0, "limit_units": ledger_units, "delta": 1e-5, "num_units": 60_000, "unit": "record"}
    return privacy_statement(releases=made, charged_units=ledger_units, **given)


@pytest.mark.parametrize(("count", "point"), [(2245, 0), (1750, 1)])
def test_the_authors_votes_reach_epsilon_1_where_they_should(count, point):
    """Golden counts (docs/requirements.md): 2,245 votes at δ = 1e-5 and 1,750 at 1e-6; the next one is too many."""
    assert 0.999 < authors_votes(count).headline.points[point].epsilon <= 1.0
    assert authors_votes(count + 1).headline.points[point].epsilon > 1.0


@pytest.mark.parametrize(
    ("delta", "deltas"), [(1e-5, [1e-5, 1e-6, 5.54e-6]), (5.54e-6, [5.54e-6, 1e-6]), (1e-6, [1e-6, 5.54e-6])]
)
def test_the_requested_delta_comes_first_and_none_twice(delta, deltas):
    guarantee = statement(delta=delta).headline
    assert [point.delta for point in guarantee.points] == deltas
    assert guarantee.points[0].chosen == "requested"
    assert guarantee.epsilon == stated_epsilon(Charge(guarantee.ledger_units), delta)


def test_votes_cost_the_same_under_both_relations():
    privacy = authors_votes(2245)
    assert privacy.headline.points == privacy.replace_one.points
    assert privacy.headline.meaning != privacy.replace_one.meaning
    assert (privacy.tier, authors_votes(2246).tier) == ("tier_1", "tier_2")
    assert privacy.delta_times_units == 0.6


def test_moments_cost_more_when_a_unit_is_replaced():
    privacy = statement()
    assert privacy.headline.ledger_units == sum(release.cost() for release in RELEASES)
    assert privacy.replace_one.ledger_units == privacy.headline.ledger_units + RELEASES[0].cost()
    assert privacy.replace_one.epsilon > privacy.headline.epsilon


def test_a_lost_charge_counts_under_both_relations_at_the_worst_factor():
    made = sum(release.cost() for release in RELEASES)
    lost = RELEASES[1].mechanism.cost()
    assert statement(made + lost).headline.ledger_units == made + lost
    worst = Fraction(RELEASES[0].cost(REPLACE_ONE), RELEASES[0].cost())
    assert worst == 2
    assert statement(made + lost).replace_one.ledger_units == statement(made).replace_one.ledger_units + 2 * lost


def test_fewer_charges_than_releases_are_a_corrupt_ledger():
    with pytest.raises(LedgerCorrupt):
        statement(sum(release.cost() for release in RELEASES) - 1)


@pytest.mark.parametrize(("steps", "counts"), [(0, []), (1, [1]), (2, [1, 1]), (141, [1, 140]), (999, [1, 140])])
def test_first_releases_are_a_prefix(steps, counts):
    made = first_releases(RELEASES, steps)
    assert [release.count for release in made] == counts
    assert [type(release.mechanism) for release in made] == [OuterProductSum, TopAgg][: len(counts)]


TIERS = {0.1: "tier_1", 1.0: "tier_1", 1.0001: "tier_2", 10.0: "tier_2", 10.0001: "tier_3"}


def test_tiers():
    assert {epsilon: classify_epsilon(epsilon) for epsilon in TIERS} == TIERS


def test_right_guesses_of_a_coin_and_of_an_oracle():
    assert [right_guesses(advantage) for advantage in (0.0, 0.1066, 0.1235, 1.0)] == ["50", "55.33", "56.18", "100"]


def test_right_guesses_are_never_rounded_down():
    for step in range(10_001):
        assert Fraction(right_guesses(step / 10_000)) >= 50 + Fraction(step, 200)


UNITS, SLACK, DELTA = 7 * 10**13, 5 * 10**11, 1e-5
BLOCK = PoissonSampling(
    num_units=60_000,
    numerator=2**45,
    draws=110,
    slack=SLACK,
    ledger_units_zero_out=UNITS,
    ledger_units_replace_one=3 * UNITS,
)
PLANNED = PlannedRelease(
    mechanism=GradientSum(dimensions=9, clip_norm=1.0, noise_stddev=10**5, sampling=BLOCK), count=100
)


@pytest.fixture
def sampled() -> PrivacyStatement:
    return privacy_statement(
        releases=first_releases([PLANNED], 40), charged_units=UNITS, slack_charged=SLACK, epsilon_limit=1.0,
        limit_units=8 * 10**13, delta=DELTA, num_units=60_000, unit="record", result="classifier",
    )  # fmt: skip


def test_every_epsilon_is_at_delta_less_the_slack(sampled: PrivacyStatement) -> None:
    for guarantee, ledger_units in ((sampled.headline, UNITS), (sampled.replace_one, 3 * UNITS)):
        assert (guarantee.ledger_units, guarantee.slack) == (ledger_units, SLACK)
        for point in (*guarantee.points, *guarantee.curve):
            assert point.epsilon == stated_epsilon(Charge(ledger_units, SLACK), point.delta)
        assert min(point.delta for point in guarantee.curve) > SLACK / 10**18
    assert sampled.spend[-1].epsilon == sampled.headline.epsilon


def test_a_run_that_ended_early_paid_for_the_whole_block(sampled: PrivacyStatement) -> None:
    assert [point.ledger_units for point in sampled.spend] == [0] + [UNITS] * 40
    assert sampled.releases[0].count == 40


def test_attacks_gain_the_slack(sampled: PrivacyStatement) -> None:
    mu = sampled.headline.mu
    assert membership_advantage(mu, 0.01) == pytest.approx(membership_advantage(mu) + 0.01, abs=1e-4)
    assert true_positive_rate(mu, 0.01, 0.01) == pytest.approx(true_positive_rate(mu, 0.01) + 0.01, abs=1e-4)
    assert sampled.headline.membership_advantage >= membership_advantage(mu)


def test_the_report_says_that_sampling_is_claimed(sampled: PrivacyStatement) -> None:
    assert sampled.accountant == phrases.SAMPLED_ACCOUNTANT
    assert "No amplification" in phrases.ACCOUNTANT
    (row,) = [one for one in assumptions(sampled=True) if one not in assumptions(sampled=False)]
    assert row.realised
    assert "coin" in row.how


def test_a_report_has_a_slack_only_where_there_is_one(sampled: PrivacyStatement) -> None:
    assert sampled.model_dump(mode="json")["headline"]["slack"] == SLACK
    without = sampled.headline.model_copy(update={"slack": 0})
    assert "slack" not in without.model_dump(mode="json")
    assert type(without).model_validate(without.model_dump(mode="json")) == without
