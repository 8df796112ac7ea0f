"""The page: self-contained, escaped, structured, and drawn to scale."""

import itertools
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from datalens_service.evaluation import Measure
from datalens_service.privacy.accounting import gaussian_delta
from datalens_service.report.charts import Bar, accuracy_bars, epsilon_delta_curve
from datalens_service.report.drawing import ticks
from datalens_service.report.pictures import Pictures, neighbours
from report_pages import owner_html, releasable_html
from tests.evaluation.conftest import report

PICTURES = Pictures(
    samples=np.zeros((6, 4, 4, 1), np.uint8),
    labels=np.repeat(np.arange(3), 2),
    neighbours=neighbours(np.arange(9 * 16, dtype=np.uint8).reshape(9, 4, 4, 1), np.arange(9) % 3, 3),
)


def private(name: str, value: float) -> Measure:
    return Measure(
        name=name, value=value, unit="percent", audience="owner", status="private", protocol="p", spread=0.5, seeds=3
    )


class Outline(HTMLParser):
    """Tags in order with attributes; complains about tags that do not match."""

    VOID = frozenset({"meta", "img", "line", "rect", "circle", "polyline", "br", "image"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(params=[owner_html, releasable_html])
def page(request) -> str:
    return request.param(report(private("accuracy", 94.5), private("ceiling", 99.0)), PICTURES)


def test_it_needs_nothing_from_outside(page):
    outline = Outline(page)
    assert not outline.of("script")
    assert not outline.of("link")
    assert not re.search(r"url\(|@import|https?://", page)
    assert not outline.of("img")
    sources = [image["href"] for image in outline.of("image")]
    # Six samples; three images with seven neighbours each.
    assert len(sources) == 6 + 3 * 8
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_it_can_be_read_without_seeing_it(page):
    outline = Outline(page)
    assert outline.of("html")[0]["lang"] == "en"
    assert all(drawing["role"] == "img" and drawing["aria-labelledby"] for drawing in outline.of("svg"))
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(cell.get("scope") in ("row", "col") for cell in outline.of("th"))
    assert len(outline.of("caption")) == len(outline.of("table")) > 0
    names = [attributes["id"] for _, attributes in outline.tags if attributes.get("id")]
    assert len(names) == len(set(names))
    for _, attributes in outline.tags:
        assert set((attributes.get("aria-labelledby") or "").split()) <= set(names)


def test_the_owners_words_are_escaped(page):
    assert "left &lt;top&gt;" in page
    assert "left <top>" not in page


def test_private_boxes_are_marked_for_the_owner_and_absent_elsewhere():
    subject = report(private("accuracy", 94.5))
    # The figures, how they were measured, and their sentences in the printed summary.
    assert owner_html(subject).count('<span class="tag">private</span>') == 3
    assert 'class="box"' not in releasable_html(subject)
    assert "left out of this copy" in releasable_html(subject)


def test_without_a_grid_there_is_no_picture():
    assert "<image" not in owner_html(report())
    assert "Nothing was measured" in owner_html(report())


def elements(svg: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(tag))  # noqa: S314


def test_bars_are_drawn_to_scale_with_whiskers():
    svg = accuracy_bars([Bar("A & B", 100.0, None, "accuracy"), Bar("<C>", 25.0, 2.0, "ceiling")])
    widths = [float(bar.attrib["width"]) for bar in elements(svg, "rect")]
    assert widths[1] == pytest.approx(widths[0] / 4)
    (whisker,) = [line for line in elements(svg, "line") if line.attrib["class"] == "whisker"]
    assert float(whisker.attrib["x2"]) - float(whisker.attrib["x1"]) == pytest.approx(widths[0] * 0.04, abs=0.2)
    assert [text.text for text in elements(svg, "text") if text.attrib["class"] == "label"] == ["A & B", "<C>"]


@pytest.mark.parametrize(("mu", "epsilon"), [(0.26805112, 1.0), (2.00044562, 10.0), (0.14221056, 0.5)])
def test_the_curve_falls_through_the_marked_point(mu, epsilon):
    delta = gaussian_delta(mu, epsilon)
    assert delta == pytest.approx(1e-5, rel=1e-3)
    svg = epsilon_delta_curve(mu, epsilon, delta)
    (line,) = elements(svg, "polyline")
    points = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert points == sorted(points)
    assert [y for _, y in points] == sorted(y for _, y in points)
    (mark,) = elements(svg, "circle")
    x, y = float(mark.attrib["cx"]), float(mark.attrib["cy"])
    before = max(point for point in points if point[0] <= x)
    after = min(point for point in points if point[0] >= x)
    assert after[0] - before[0] < 8
    assert before[1] - 0.2 <= y <= after[1] + 0.2


def test_a_job_that_charged_nothing_has_an_empty_curve():
    (line,) = elements(epsilon_delta_curve(0.0, 0.0, 1e-5), "polyline")
    assert line.attrib["points"] == ""


def test_every_axis_has_four_to_nine_ticks() -> None:
    for largest in [*np.geomspace(1e-4, 1e4, 2001), 8.0, 8.4, 9.999, 10.0, 80.1]:
        found = ticks(float(largest))
        assert 4 <= len(found) <= 9, largest
        assert found[0] == 0
        assert found[-1] <= largest
