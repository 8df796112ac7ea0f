"""A printed report begins with a summary of at most three pages."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page

from datalens_service.evaluation.measures import ClassFigure, Measure
from datalens_service.report.build import Report, owner_view
from datalens_service.report.evidence import evidence_page
from report_pages import owner_html, releasable_html
from tests.evaluation.conftest import CLASS_NAMES, report

pytestmark = pytest.mark.browser

MOST_PAGES = 3
_LEAF = re.compile(rb"/Type\s*/Page\b(?!s)")


def count_pages(page: Page) -> int:
    """Pages of A4 that Chromium prints."""
    return len(_LEAF.findall(page.pdf(format="A4", prefer_css_page_size=False)))


def full_report() -> Report:
    """With figures, and sentences about everything that only some jobs do."""
    given = {"unit": "percent", "audience": "owner", "status": "private", "protocol": "standard CNN", "seeds": 3}
    names = ("accuracy", "ceiling", "floor_averages", "floor_moments")
    measures = [Measure(name=name, value=81.0, spread=0.5, confidence_interval=(79.8, 82.2), **given) for name in names]
    method = {"rationale": "Images look like the private ones. " * 3, "working_size": "Images are reduced. " * 10}
    lines = [
        ClassFigure(classifier="CNN", class_name=name, test_images=9, accuracy=80, ceiling=90, taken_for=None)
        for name in CLASS_NAMES
    ]
    subject = report(*measures, per_class=tuple(lines))
    return subject.model_copy(update={"method": subject.method.model_copy(update=method)})


@pytest.mark.parametrize("result", ["generator", "classifier"])
@pytest.mark.parametrize("render", [owner_html, releasable_html])
def test_the_summary_comes_first_and_has_three_pages_at_most(chromium: Browser, render: object, result: str) -> None:
    page = chromium.new_page()
    page.set_content(render(full_report().model_copy(update={"result": result})))  # type: ignore[operator]
    whole = count_pages(page)
    page.add_style_tag(content="@media print { .details, .auditor { display: none; } }")
    summary = count_pages(page)
    assert summary <= MOST_PAGES
    page.add_style_tag(content="@media print { .details, .auditor { display: block; } .summary { display: none; } }")
    # The rest begins on a page of its own, so the first pages are the summary and nothing else.
    assert whole == summary + count_pages(page)
    assert page.locator("main > *").first.get_attribute("class") == "summary"
    page.close()


@pytest.mark.parametrize(
    "render", [owner_html, lambda report: evidence_page(owner_view(report))], ids=["report", "evidence"]
)
def test_sentences_in_tables_have_the_width_of_a_phone(chromium: Browser, render: Callable[[Report], str]) -> None:
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    page.set_content(render(full_report()))
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    cells = page.locator("table.sentences td:not(:empty)")
    assert cells.count() > 5
    assert min(cells.nth(number).bounding_box()["width"] for number in range(cells.count())) > 300


def test_the_evidence_file_prints_on_a_few_pages_and_cuts_no_row(chromium: Browser) -> None:
    page = chromium.new_page()
    page.set_content(evidence_page(owner_view(full_report())))
    assert 3 <= count_pages(page) <= 10
    page.emulate_media(media="print")
    broken = "[...document.querySelectorAll('tr')].filter(row => getComputedStyle(row).breakInside !== 'avoid').length"
    assert page.evaluate(broken) == 0
