"""Drawings of figures: the ε-δ curve, ε release by release, and measures as bars.

Accuracy has one scale; every other measure stands beside a baseline and other real images.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from datalens_service.base.parsing import decimal_text
from datalens_service.privacy.accounting import gaussian_delta
from datalens_service.report.drawing import Element, canvas, line, mark, polyline, rectangle, text, ticks, xml

# Edges of the window.
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 696, 16, 290
_MOST_EPSILON_MARGIN: Final = 1.15


class Spent(NamedTuple):
    """ε after so many releases."""

    releases: int
    epsilon: float


def epsilon_delta_curve(mu: float, epsilon: float, delta: float, slack: float = 0.0) -> str:
    """Draw δ over ε for a μ-GDP release, on a logarithmic scale, with the requested point marked."""
    frame = _Frame(max(1.6 * epsilon, 0.1), math.ceil(-math.log10(delta)) + 3)
    label = f"ε = {decimal_text(epsilon)} at δ = {decimal_text(delta)}"
    svg = canvas("curve", _BOTTOM + 46, "The ε-δ curve of this job", f"Every pair that holds; marked: {label}")
    _axes(svg, frame)
    polyline(svg, "curve", [(frame.across(x), frame.down(y)) for x, y in _curve(mu, slack, frame)])
    _marked(svg, frame.across(epsilon), frame.down(delta), label)
    return xml(svg)


def epsilon_over_releases(path: Sequence[Spent], limit: float, delta: float) -> str:
    """Draw ε of the running account after each release, as a staircase below the job's limit."""
    last = path[-1]
    description = f"{last.releases} releases; ε = {decimal_text(last.epsilon)} at δ = {decimal_text(delta)} at the end"
    svg = canvas("spend", _BOTTOM + 46, "ε over the releases of this job", description)
    highest = max(limit, last.epsilon) * _MOST_EPSILON_MARGIN
    _spend_axes(svg, last.releases, highest)
    stairs = [point for before, after in itertools.pairwise(path) for point in _stair(before, after)]
    places = [(_across(x, last.releases), _up(y, highest)) for x, y in [(0.0, 0.0), *stairs]]
    polyline(svg, "curve", places)
    y = _up(limit, highest)
    line(svg, "guide", _LEFT, y, _RIGHT, y)
    text(
        svg,
        "label",
        _LEFT + 8,
        y - 8,
        f"limit of the job: ε = {decimal_text(limit)} at δ = {decimal_text(delta)}",
        "start",
    )
    mark(svg, *places[-1])
    return xml(svg)


def _stair(before: Spent, after: Spent) -> list[tuple[float, float]]:
    return [(after.releases, before.epsilon), (after.releases, after.epsilon)]


def _across(releases: float, most: int) -> float:
    return _LEFT + (_RIGHT - 24 - _LEFT) * releases / max(1, most)


def _up(epsilon: float, highest: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * epsilon / highest


def _spend_axes(svg: Element, releases: int, highest: float) -> None:
    for tick in ticks(highest):
        y = _up(tick, highest)
        line(svg, "grid", _LEFT, y, _RIGHT, y)
        text(svg, "tick", _LEFT - 10, y + 5, decimal_text(tick), "end")
    for made in [tick for tick in ticks(max(1, releases)) if tick == int(tick)]:
        text(svg, "tick", _across(made, releases), _BOTTOM + 20, f"{int(made):,}", "middle")
    line(svg, "axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    text(svg, "tick", (_LEFT + _RIGHT) / 2, _BOTTOM + 42, "releases made", "middle")
    text(svg, "tick", 18, (_TOP + _BOTTOM) / 2, "ε", "middle")


class _Frame(NamedTuple):
    """The window of the ε-δ curve: ε up to `largest`, δ down to 10^-decades."""

    largest: float
    decades: int

    def across(self, epsilon: float) -> float:
        """Return the horizontal place of ε in the drawing."""
        return _LEFT + (_RIGHT - _LEFT) * epsilon / self.largest

    def down(self, delta: float) -> float:
        """Return the vertical place of δ in the drawing."""
        return _TOP + (_BOTTOM - _TOP) * -math.log10(delta) / self.decades


def _axes(svg: Element, frame: _Frame) -> None:
    for power in range(0, frame.decades + 1, 2):
        y = frame.down(10.0**-power)
        line(svg, "grid", _LEFT, y, _RIGHT, y)
        text(svg, "tick", _LEFT - 10, y + 5, "1" if power == 0 else f"1e-{power}", "end")
    for tick in ticks(frame.largest):
        text(svg, "tick", frame.across(tick), _BOTTOM + 20, decimal_text(tick), "middle")
    line(svg, "axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    text(svg, "tick", (_LEFT + _RIGHT) / 2, _BOTTOM + 42, "ε", "middle")
    text(svg, "tick", 18, (_TOP + _BOTTOM) / 2, "δ", "middle")


def _marked(svg: Element, x: float, y: float, label: str) -> None:
    line(svg, "guide", x, y, x, _BOTTOM)
    mark(svg, x, y)
    text(svg, "label strong", x + 12, y - 8, label, "start")


def _curve(mu: float, slack: float, frame: _Frame) -> list[tuple[float, float]]:
    """Return points (ε, δ) from ε = 0 to where δ leaves the drawing."""
    epsilons = [frame.largest * step / 160 for step in range(161)]
    points = [(epsilon, gaussian_delta(mu, epsilon) + slack) for epsilon in epsilons]
    return [(epsilon, delta) for epsilon, delta in points if delta >= 10.0**-frame.decades]


class Bar(NamedTuple):
    """One row of a bar chart: `value` and `spread` in the chart's unit; `kind` is a class of the style sheet."""

    label: str
    value: float
    spread: float | None
    kind: str


class MetricBars(NamedTuple):
    """A metric of synthetic images beside its baseline and other real images, on its own scale."""

    title: str
    hint: str
    rows: tuple[Bar, ...]
    values: tuple[str, ...]
    """The values of the rows, formatted for reading."""

    @property
    def description(self) -> str:
        """Describe the bars for those who do not see them."""
        rows = (f"{bar.label} {value}" for bar, value in zip(self.rows, self.values, strict=True))
        return f"{self.title}: {', '.join(rows)}"


_ROW, _BARS_TOP, _BARS_LEFT, _LENGTH = 40, 4, 268, 380


def accuracy_bars(bars: Sequence[Bar]) -> str:
    """Draw horizontal bars from 0 to 100 percent, with the spread as a whisker."""
    height = _BARS_TOP + _ROW * len(bars) + 26
    named = "; ".join(f"{bar.label}: {bar.value:.1f} %" for bar in bars)
    svg = canvas("accuracy", height, "Accuracy on real test images", named)
    for tick in range(0, 101, 25):
        x = _BARS_LEFT + _LENGTH * tick / 100
        line(svg, "grid", x, _BARS_TOP, x, height - 22)
        text(svg, "tick", x, height - 6, f"{tick} %", "middle")
    for index, bar in enumerate(bars):
        _accuracy_bar(svg, bar, _BARS_TOP + _ROW * index, _LENGTH / 100)
    return xml(svg)


def _accuracy_bar(svg: Element, bar: Bar, top: float, per_percent: float) -> None:
    middle, end = top + 18, _BARS_LEFT + bar.value * per_percent
    text(svg, "label", _BARS_LEFT - 12, middle + 5, bar.label, "end")
    rectangle(svg, f"bar {bar.kind}", _BARS_LEFT, top + 5, end - _BARS_LEFT, 26)
    reach = (bar.spread or 0.0) * per_percent
    if reach:
        line(svg, "whisker", end - reach, middle, end + reach, middle)
    text(svg, "value", max(end + reach, end) + 8, middle + 5, f"{bar.value:.1f}", "start")


def metric_bars(name: str, title: str, metrics: Sequence[MetricBars]) -> str:
    """One block per metric: synthetic images, baseline and other real images on the metric's own scale from 0."""
    thin, gap = 22, 30
    height = sum(gap + thin * len(metric.rows) for metric in metrics) + 4
    description = "; ".join(metric.description for metric in metrics)
    svg, top = canvas(name, height, title, description), 0.0
    for metric in metrics:
        _metric(svg, metric, top, thin)
        top += gap + thin * len(metric.rows)
    return xml(svg)


def _metric(svg: Element, metric: MetricBars, top: float, thin: float) -> None:
    longest = max((abs(bar.value) for bar in metric.rows), default=0.0) or 1.0
    text(svg, "label strong", 0, top + 18, metric.title, "start")
    text(svg, "tick", 0, top + 36, metric.hint, "start")
    for index, (bar, value) in enumerate(zip(metric.rows, metric.values, strict=True)):
        y = top + 6 + thin * index
        width = max(0.0, bar.value) / longest * (_LENGTH - 90)
        text(svg, "tick", _BARS_LEFT + 78, y + 13, bar.label, "end")
        rectangle(svg, f"bar {bar.kind}", _BARS_LEFT + 90, y, max(width, 1.0), thin - 6)
        text(svg, "value", _BARS_LEFT + 98 + width, y + 13, value, "start")
