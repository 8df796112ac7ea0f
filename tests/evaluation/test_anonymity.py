"""What a report says to the question whether a release is anonymous, and what the page for lawyers says it says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from datalens_service.evaluation.report import anonymity
from datalens_service.evaluation.report.anonymity import INFERENCE, LINKABILITY, SINGLING_OUT, anonymity_of
from datalens_service.evaluation.report.build import owner_view, releasable_view
from datalens_service.evaluation.report.document import check
from datalens_service.evaluation.report.html import releasable_html

from .conftest import report, statement

PAGE = Path(__file__).parent.parent.parent / "docs" / "legal.md"
BRACE = re.compile(r"\{\w+\}")


def plain(text: str) -> str:
    return re.sub(r"[\s>]+", " ", text)


def test_the_page_for_lawyers_has_every_sentence_of_the_report() -> None:
    page = plain(PAGE.read_text())
    assert plain(anonymity.DECISION) in page
    for name, *sentences in (SINGLING_OUT, LINKABILITY, INFERENCE):
        assert f"**{name}.**" in page
        assert all(plain(sentence) in page for sentence in sentences)


def test_both_copies_answer_the_three_questions_with_the_figures_of_the_job() -> None:
    subject, answers = report(), anonymity_of(statement())
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
    guessed = float(re.findall(r"at most ([\d.]+) of 100", anonymity_of(privacy).criteria[2].speaks_for)[0])
    assert abs(guessed - (50 + 50 * privacy.replace_one.membership_advantage)) <= 0.01
    assert privacy.replace_one.membership_advantage > privacy.headline.membership_advantage


def test_a_report_of_an_earlier_version_has_no_such_part_and_is_complete() -> None:
    from datalens_service.evaluation.report.document import compute_seal

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
