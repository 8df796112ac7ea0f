"""Figures of membership attacks against laws that are known."""

import math

import numpy as np
import pytest
from scipy import stats

from datalens_service.audits.attacks import MEMBERSHIP, Evidence
from datalens_service.audits.membership import area_under_curve, measure, true_positives_allowed
from datalens_service.audits.subgroups import check_groups, measure_classes, measure_groups
from datalens_service.base.errors import InvalidInput

MU = 1.0


def gaussian_scores(mu: float, count: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return rng.normal(mu, 1, count), rng.normal(0, 1, count)


def test_two_normal_laws_reach_what_mu_allows_and_not_more() -> None:
    figures = measure(*gaussian_scores(MU), mu=MU)
    assert figures.auc_allowed == pytest.approx(stats.norm.cdf(MU / math.sqrt(2)))
    assert figures.interval[0] < figures.auc_allowed < figures.interval[1]
    for point in figures.operating_points:
        assert point.allowed == pytest.approx(true_positives_allowed(MU, point.false_positive_rate))
        assert point.true_positive_rate == pytest.approx(point.allowed, rel=0.25)


def test_chance_is_one_half_with_ties_counted_half() -> None:
    area, (low, high) = area_under_curve(np.zeros(50), np.zeros(70))
    assert (area, low, high) == (0.5, 0.5, 0.5)


def test_the_interval_covers_the_true_area_as_often_as_it_says() -> None:
    rng, truth = np.random.default_rng(1), stats.norm.cdf(MU / math.sqrt(2))
    intervals = [area_under_curve(rng.normal(MU, 1, 60), rng.normal(0, 1, 80))[1] for _ in range(400)]
    covered = np.mean([low <= truth <= high for low, high in intervals])
    assert 0.91 <= covered <= 0.985


def test_non_members_above_the_threshold_stay_within_the_rate() -> None:
    members, others = np.full(1000, 0.5), np.linspace(0, 1, 1000)
    figures = measure(members, others, None)
    assert [point.true_positive_rate for point in figures.operating_points] == [0, 0]
    assert figures.auc_allowed is None


def test_one_candidate_is_refused() -> None:
    with pytest.raises(InvalidInput):
        measure(np.zeros(1), np.zeros(9), None)


@pytest.mark.parametrize("name", ["reference", "likelihood_ratio"])
def test_references_take_away_what_is_easy_for_every_model(name: str) -> None:
    """Records differ in difficulty far more than membership moves them; the loss alone cannot see it."""
    rng = np.random.default_rng(2)
    is_member = np.arange(2000) < 1000
    difficulty = rng.normal(0, 10, 2000)
    references = difficulty + rng.normal(0, 1, (8, 2000))
    target = difficulty + rng.normal(0, 1, 2000) + is_member
    evidence = Evidence(target, references, np.zeros(2000, dtype=np.int64), is_member)

    def area(attack: str) -> float:
        scores = MEMBERSHIP[attack].score(evidence)
        return area_under_curve(scores[is_member], scores[~is_member])[0]

    assert area(name) > 0.7
    assert area("loss_threshold") < 0.56


@pytest.mark.parametrize("name", ["reference", "likelihood_ratio"])
def test_attacks_that_compare_refuse_to_go_without_references(name: str) -> None:
    evidence = Evidence(np.zeros(4), np.zeros((1, 4)), np.zeros(4, dtype=np.int64), np.arange(4) < 2)
    with pytest.raises(InvalidInput):
        MEMBERSHIP[name].score(evidence)


def test_classes_are_scored_on_the_half_that_chose_no_threshold() -> None:
    rng = np.random.default_rng(3)
    is_member, labels = np.tile([True, False], 2000), np.repeat([0, 1], 2000)
    target = rng.normal(0, 1, 4000) + 3.0 * (is_member & (labels == 1))
    evidence = Evidence(target, np.zeros((0, 4000)), labels.astype(np.int64), is_member)
    chance, leaking = measure_classes(evidence, ("a", "b"), seed=0)
    assert chance.interval[0] < 0.5 < chance.interval[1]
    assert leaking.success == pytest.approx(stats.norm.cdf(1.5), abs=0.04)
    assert chance.candidates == 1000


def test_a_group_has_one_threshold_for_all_of_its_classes() -> None:
    rng = np.random.default_rng(3)
    is_member, labels = np.tile([True, False], 3000), np.repeat([0, 1, 2], 2000)
    target = rng.normal(0, 1, 6000) + 3.0 * (is_member & (labels > 0)) + 50.0 * (labels == 2)
    evidence = Evidence(target, np.zeros((0, 6000)), labels.astype(np.int64), is_member)
    alone, apart = measure_groups(evidence, ("a", "b", "c"), {"b alone": ("b",), "b and c": ("b", "c")}, seed=0)
    assert alone.success == pytest.approx(stats.norm.cdf(1.5), abs=0.04)
    # No threshold fits two classes whose losses lie far apart: it tells the members of one, and none of the other.
    assert apart.success == pytest.approx((stats.norm.cdf(1.5) + 0.5) / 2, abs=0.04)
    assert (apart.group, apart.class_names, apart.candidates) == ("b and c", ("b", "c"), 2000)


@pytest.mark.parametrize("groups", [{"one": ("d",)}, {"none": ()}], ids=str)
def test_groups_of_no_class_are_refused(groups: dict[str, tuple[str, ...]]) -> None:
    with pytest.raises(InvalidInput):
        check_groups(("a", "b"), groups)


def test_a_unit_of_several_records_is_one_candidate() -> None:
    rng = np.random.default_rng(4)
    units = np.repeat(np.arange(1000), 4)
    is_member = units < 500
    labels = (units % 2).astype(np.int64)
    labels[:1] = 1
    target, references = rng.normal(0, 1, 4000) + 0.5 * is_member, rng.normal(0, 1, (3, 4000))
    evidence = Evidence(target, references, labels, is_member).group_units(units)
    assert (len(evidence.target), evidence.references.shape) == (1000, (3, 1000))
    np.testing.assert_allclose(evidence.target[7], target[28:32].mean())
    np.testing.assert_allclose(evidence.references[2, 7], references[2, 28:32].mean())
    assert list(evidence.labels[:4]) == [-1, 1, 0, 1]
    area, _ = area_under_curve(evidence.target[evidence.is_member], evidence.target[~evidence.is_member])
    # Four records tell of their unit what one of twice the shift tells.
    assert area == pytest.approx(stats.norm.cdf(1 / math.sqrt(2)), abs=0.04)


def test_classes_with_few_candidates_are_left_out() -> None:
    evidence = Evidence(np.zeros(30), np.zeros((0, 30)), np.zeros(30, dtype=np.int64), np.arange(30) < 5)
    assert measure_classes(evidence, ("a",), seed=0) == ()
