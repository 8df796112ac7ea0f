"""What a report says to the question whether a release is anonymous, and what the page for lawyers says of it."""

import json
import re
from pathlib import Path

from datalens_service.privacy.accounting import mu_for_epsilon
from datalens_service.privacy.guarantee import membership_advantage, right_guesses
from datalens_service.report.anonymity import assess_anonymity
from datalens_service.report.build import owner_view, releasable_view
from datalens_service.report.document import check, compute_seal
from report_pages import releasable_html

from .conftest import report, statement

BRACE = re.compile(r"\{\w+\}")
PAGE = Path(__file__).parent.parent.parent / "docs" / "legal.md"


def plain(text: str) -> str:
    return re.sub(r"[\s>]+", " ", text)


def test_a_report_of_a_classifier_speaks_of_no_image() -> None:
    answers = assess_anonymity(statement(), "classifier").criteria
    text = " ".join(f"{criterion.speaks_for} {criterion.speaks_against}" for criterion in answers)
    assert re.findall(r"\w+ images?\b", text) == ["no images"]


def test_the_page_for_lawyers_has_the_questions_of_a_report_and_the_figures_of_the_accountant() -> None:
    page = plain(PAGE.read_text())
    questions = [criterion.name for criterion in assess_anonymity(statement(), "generator").criteria]
    assert re.findall(r"- \*\*(.+?)\.\*\*", page)[:3] == questions
    (guesses,) = re.findall(r"At ε = 1 and δ = 10⁻⁵ anybody is right in at most ([\d.]+) of 100", page)
    mu = mu_for_epsilon(1.0, 1e-5)
    assert guesses == right_guesses(membership_advantage(mu))
    assert "(up to 1, up to 10, above)" in page


def test_both_copies_answer_the_three_questions_with_the_figures_of_the_job() -> None:
    subject, answers = report(), assess_anonymity(statement())
    assert [criterion.name for criterion in answers.criteria] == ["Singling out", "Linkability", "Inference"]
    assert not BRACE.search(answers.model_dump_json().replace('{"', ""))
    assert "patient" in answers.criteria[0].speaks_against
    for view in (owner_view(subject), releasable_view(subject)):
        assert view["anonymity"] == answers.model_dump(mode="json")
    page = plain(releasable_html(subject))
    assert "Is it anonymous?" in page
    for criterion in answers.criteria:
        assert plain(criterion.speaks_for) in page
        assert plain(criterion.speaks_against) in page


def test_inference_is_bounded_by_the_figure_for_replacing_a_record() -> None:
    privacy = statement()
    guessed = float(re.findall(r"at most ([\d.]+) of 100", assess_anonymity(privacy).criteria[2].speaks_for)[0])
    assert abs(guessed - (50 + 50 * privacy.replace_one.membership_advantage)) <= 0.01
    assert privacy.replace_one.membership_advantage > privacy.headline.membership_advantage


def test_a_report_of_an_earlier_version_has_no_such_part_and_is_complete() -> None:
    view = releasable_view(report())
    del view["anonymity"]
    view["seal"]["sha256"] = compute_seal(view)
    check(json.dumps(view).encode())


def test_both_figures_for_the_loss_stand_side_by_side() -> None:
    page = releasable_html(report())
    facts = page.partition('class="facts"')[2].partition("</dl>")[0]
    assert re.findall(r"<dt>(One patient \w+)</dt>", facts) == ["One patient removed", "One patient replaced"]
    assert len(re.findall(r"<b>ε = ", facts)) == 2
    assert "easonable" not in page
