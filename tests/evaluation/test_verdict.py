"""What figures mean for the owner: over a panel of figures, and in no view that may be passed on."""

import json
from typing import Any

import pytest

from datalens_service.data.export.model_card import model_card
from datalens_service.data.export.pages import DrawnImages, datasheet
from datalens_service.evaluation.measures import ClassFigure, ConfusionTable, Measure
from datalens_service.report.build import Report, owner_view, releasable_view
from datalens_service.report.card import card
from datalens_service.report.verdict import (
    ClassShare,
    Figures,
    judge,
    judge_attack,
    judge_inversion,
    judge_pair,
)
from report_pages import owner_html, releasable_html
from tests.evaluation.conftest import CLASS_NAMES, report

AVERAGES = "releasing the noisy class averages"
TEN = tuple(ClassShare(500, 70.0) for _ in range(10))
SMILES = (ClassShare(1375, 73.0), ClassShare(3625, 83.7))


def images(accuracy: float | None, simpler: float | None = None, **others: Any) -> Figures:
    known = {"classifier": False, "guessing": 10.0, "spread": 0.5, "seeds": 3} | others
    return Figures(accuracy=accuracy, simpler=None if simpler is None else (AVERAGES, simpler), **known)


@pytest.mark.parametrize(
    ("figures", "grade"),
    [
        (images(None), "unknown"),
        (images(None, 71.0), "unknown"),
        (images(18.1, 30.5), "worse"),
        (images(75.6, 71.3, real=95.9, classes=TEN), "useful"),
        (images(31.3, 31.5), "even"),
        (images(31.5, 31.3), "even"),
        (images(75.6, 71.3, spread=9.0), "even"),
        (images(75.6, 71.3, seeds=1, spread=0.0, classes=tuple(ClassShare(10, 70.0) for _ in range(10))), "even"),
        (images(10.4, 31.0), "useless"),
        (images(10.4), "useless"),
        (images(75.6), "useful"),
        # All images are given the most frequent class: nothing was learned, though 72.5 % are right.
        (images(72.5, 60.0, guessing=50.0, classes=(ClassShare(1375, 0.0), ClassShare(3625, 100.0))), "useless"),
        # The majority is right more often, and yet the classes are told apart.
        (images(70.5, 60.0, guessing=50.0, classes=(ClassShare(1375, 72.0), ClassShare(3625, 70.0))), "useful"),
        (images(80.8, 81.9, guessing=50.0, classes=SMILES), "even"),
        # Three test images of each class tell nothing.
        (images(40.0, guessing=33.3, classes=tuple(ClassShare(3, 40.0) for _ in range(3))), "useless"),
        (images(88.6, classifier=True), "useful"),
        (images(10.6, classifier=True), "useless"),
    ],
)
def test_a_panel_of_figures(figures: Figures, grade: str) -> None:
    verdict = judge(figures)
    assert verdict.grade == grade
    assert ("Do not pass" in verdict.sentence) == (grade in ("useless", "worse"))


def test_a_loss_is_told_in_whole_figures_and_a_tie_in_finer_ones() -> None:
    assert "18 against 31 %" in judge(images(18.1, 30.5)).sentence
    assert "31.3 against 31.5 %" in judge(images(31.3, 31.5)).sentence
    # As the tables of reports and pages round it.
    assert f"{73.25:.1f} against" in judge(images(73.25, 72.9)).sentence


def test_unequal_classes_are_told_by_their_average_and_the_majority() -> None:
    sentence = judge(images(80.8, 71.9, guessing=50.0, classes=SMILES)).sentence
    assert all(figure in sentence for figure in ("78 %", "50 %", "73 %"))
    assert "unequal" not in judge(images(75.6, 71.3, classes=TEN)).sentence


def test_with_unequal_classes_means_over_classes_are_compared() -> None:
    """Plain accuracy is above all simpler ways, the mean over classes is not."""
    unequal = images(83.7, 81.0, guessing=50.0, classes=(ClassShare(400, 66.0), ClassShare(3600, 85.7)), averaged=True)
    verdict = judge(unequal)
    assert verdict.grade == "worse"
    assert "76 against 81 %, averaged over classes" in verdict.sentence
    assert "84 %" in verdict.sentence
    assert "90 %" in verdict.sentence
    assert "worse" not in judge(unequal._replace(averaged=False)).sentence


def test_what_the_discriminant_gets_from_the_same_images_is_told_where_it_is_more() -> None:
    assert (
        "linear discriminant of the same images is better, with 81 %" in judge(images(70.0, 60.0, linear=81.0)).sentence
    )
    assert "discriminant" not in judge(images(70.0, 60.0, linear=70.5)).sentence


def test_real_images_are_told_with_their_spread() -> None:
    told = judge(images(70.0, 60.0, real=90.4, real_spread=0.52)).sentence
    assert "trained on the real images, the same classifier reaches 90 ± 0.5 %" in told


def test_the_best_of_all_simpler_ways_is_compared() -> None:
    found = {"accuracy": 70.0, "floor_majority": 72.0, "floor_averages": 71.0, "floor_moments": 40.0}
    compared = Figures.from_report(owner_view(report(*(measured(name, value) for name, value in found.items()))))
    assert compared.simpler == ("always naming the most frequent class", 72.0)


def test_of_two_jobs_the_better_one_is_named() -> None:
    assert "second" in judge_pair(images(60.0), images(75.0))
    assert "Neither" in judge_pair(images(75.1), images(75.0))
    assert judge_pair(images(None), images(75.0)) == ""


def test_an_attack_below_chance_is_no_better_than_guessing() -> None:
    guessing = "no better than guessing"
    assert guessing in judge_attack(0.476, (0.453, 0.498), 0.52)
    assert guessing in judge_attack(0.51, (0.49, 0.53), 0.52)
    within, beyond = judge_attack(0.53, (0.51, 0.55), 0.6), judge_attack(0.7, (0.68, 0.72), 0.6)
    assert guessing not in within + beyond
    assert "wrong" in beyond
    assert "wrong" not in within
    assert "No guarantee" in judge_attack(0.7, (0.68, 0.72), None)


def test_a_gradient_that_shows_no_image_is_said_to_show_none() -> None:
    assert "no more than" in judge_inversion("released", 1.1, (0.9, 1.3))
    assert "better than" in judge_inversion("raw", 0.2, (0.1, 0.3))


def measured(name: str, value: float) -> Measure:
    return Measure(
        name=name, value=value, unit="percent", audience="owner", status="private", protocol="p", spread=0.5, seeds=3
    )


def finished() -> dict[str, Report]:
    """A report whose verdict warns, one whose verdict praises, and one on a classifier."""
    lines = tuple(
        ClassFigure(
            classifier="CNN", class_name=name, test_images=700, accuracy=share, ceiling=None, taken_for=CLASS_NAMES[0]
        )
        for name, share in zip(CLASS_NAMES, (61.0, 70.0, 79.0), strict=True)
    )
    table = ConfusionTable(class_names=CLASS_NAMES, counts=((90, 5, 5), (8, 84, 8), (1, 2, 97)), reference="test")
    given = {
        level: report(measured("accuracy", 70.0), measured("floor_averages", level), per_class=lines)
        for level in (83.0, 51.0)
    }
    classifier = report(measured("classifier_accuracy", 90.3), confusion=table)
    return {"worse": given[83.0], "useful": given[51.0], "classifier": classifier}


@pytest.mark.parametrize("kind", ["worse", "useful", "classifier"])
def test_the_owners_report_has_the_verdict_and_nothing_that_is_passed_on_has(kind: str) -> None:
    given = finished()[kind]
    owned = owner_view(given)
    sentence = judge(Figures.from_report(owned)).sentence
    assert owned["usefulness"] == [sentence]
    assert sentence in owner_html(given)
    public = card(given)
    released = [json.dumps(releasable_view(given), ensure_ascii=False), releasable_html(given), json.dumps(public)]
    for text in [
        *released,
        datasheet(public, DrawnImages(10), name="n", spdx="CC0-1.0"),
        model_card(public, "classifier", ["a.onnx"]),
    ]:
        assert sentence not in text
        assert sentence.partition(":")[0] not in text


def test_per_class_figures_and_tables_of_a_report_are_read() -> None:
    reports = finished()
    assert Figures.from_report(owner_view(reports["worse"])).balanced == pytest.approx(70.0)
    assert Figures.from_report(owner_view(reports["classifier"])).balanced == pytest.approx((90 + 84 + 97) / 3)
    assert judge(Figures.from_report(owner_view(report()))).grade == "unknown"
