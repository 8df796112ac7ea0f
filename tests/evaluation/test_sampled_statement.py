"""The privacy part of a report on a sampled run: its slack is in every figure, and its sentences say so."""

import pytest

from datalens_service.evaluation.report import phrases
from datalens_service.evaluation.report.disclosures import assumptions
from datalens_service.evaluation.report.privacy_statement import (
    PrivacyStatement,
    first_releases,
    membership_advantage,
    privacy_statement,
    true_positive_rate,
)
from datalens_service.mechanisms import GradientSum
from datalens_service.mechanisms.planned_release import PlannedRelease
from datalens_service.privacy.accounting import Charge, epsilon_of_charge, round_up
from datalens_service.privacy.poisson_sampling import PoissonSampling

UNITS, SLACK, DELTA = 7 * 10**13, 5 * 10**11, 1e-5
BLOCK = PoissonSampling(
    num_units=60_000, numerator=2**45, draws=110, slack=SLACK, units_zero_out=UNITS, units_replace_one=3 * UNITS
)
PLANNED = PlannedRelease(
    mechanism=GradientSum(dimensions=9, clip_norm=1.0, noise_stddev=10**5, sampling=BLOCK), count=100
)


@pytest.fixture
def statement() -> PrivacyStatement:
    return privacy_statement(
        releases=first_releases([PLANNED], 40), units_charged=UNITS, slack_charged=SLACK, epsilon_limit=1.0,
        limit_units=8 * 10**13, delta=DELTA, num_units=60_000, unit="record", result="classifier",
    )  # fmt: skip


def test_every_epsilon_is_at_delta_less_the_slack(statement: PrivacyStatement) -> None:
    for guarantee, units in ((statement.headline, UNITS), (statement.replace_one, 3 * UNITS)):
        assert (guarantee.units, guarantee.slack) == (units, SLACK)
        for point in (*guarantee.points, *guarantee.curve):
            assert point.epsilon == round_up(epsilon_of_charge(Charge(units, SLACK), point.delta))
        assert min(point.delta for point in guarantee.curve) > SLACK / 10**18
    assert statement.spend[-1].epsilon == statement.headline.epsilon


def test_a_run_that_ended_early_paid_for_the_whole_block(statement: PrivacyStatement) -> None:
    assert [point.units for point in statement.spend] == [0] + [UNITS] * 40
    assert statement.releases[0].count == 40


def test_attacks_gain_the_slack(statement: PrivacyStatement) -> None:
    mu = statement.headline.mu
    assert membership_advantage(mu, 0.01) == pytest.approx(membership_advantage(mu) + 0.01, abs=1e-4)
    assert true_positive_rate(mu, 0.01, 0.01) == pytest.approx(true_positive_rate(mu, 0.01) + 0.01, abs=1e-4)
    assert statement.headline.membership_advantage >= membership_advantage(mu)


def test_the_report_says_that_sampling_is_claimed(statement: PrivacyStatement) -> None:
    assert statement.accountant == phrases.SAMPLED_ACCOUNTANT
    assert "No amplification" in phrases.ACCOUNTANT
    (row,) = [one for one in assumptions(sampled=True) if one not in assumptions(sampled=False)]
    assert row.realised
    assert "coin" in row.how


def test_a_report_has_a_slack_only_where_there_is_one(statement: PrivacyStatement) -> None:
    assert statement.model_dump(mode="json")["headline"]["slack"] == SLACK
    without = statement.headline.model_copy(update={"slack": 0})
    assert "slack" not in without.model_dump(mode="json")
    assert type(without).model_validate(without.model_dump(mode="json")) == without
