"""A printed report begins with a summary of at most three pages."""

import re

import pytest
from playwright.sync_api import Browser, Page

from datalens_service.evaluation.measures import ClassFigure, Measure
from datalens_service.report.build import Report
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
