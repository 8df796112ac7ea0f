"""Figures as bars: accuracy on one scale, and every other figure beside a baseline and an upper bound."""

from collections.abc import Sequence
from typing import NamedTuple

from datalens_service.evaluation.report.drawing import Element, canvas, line, rectangle, text, xml


class Bar(NamedTuple):
    """One row of a bar chart: `value` and `spread` in the chart's unit; `kind` is a class of the style sheet."""

    label: str
    value: float
    spread: float | None
    kind: str


class MetricBars(NamedTuple):
    """A metric of synthetic images beside its baseline and upper bound, on its own scale."""

    title: str
    hint: str
    rows: tuple[Bar, ...]
    values: tuple[str, ...]
    """As they are written."""

    @property
    def description(self) -> str:
        """For those who do not see the bars."""
        rows = (f"{bar.label} {value}" for bar, value in zip(self.rows, self.values, strict=True))
        return f"{self.title}: {', '.join(rows)}"


_ROW, _TOP, _LEFT, _LENGTH = 40, 4, 268, 380


def accuracy_bars(bars: Sequence[Bar]) -> str:
    """Horizontal bars from 0 to 100 percent, with the spread as a whisker."""
    height = _TOP + _ROW * len(bars) + 26
    named = "; ".join(f"{bar.label}: {bar.value:.1f} %" for bar in bars)
    svg = canvas("accuracy", height, "Accuracy on real test images", named)
    for tick in range(0, 101, 25):
        x = _LEFT + _LENGTH * tick / 100
        line(svg, "grid", x, _TOP, x, height - 22)
        text(svg, "tick", x, height - 6, f"{tick} %", "middle")
    for index, bar in enumerate(bars):
        _accuracy_bar(svg, bar, _TOP + _ROW * index, _LENGTH / 100)
    return xml(svg)


def _accuracy_bar(svg: Element, bar: Bar, top: float, per_percent: float) -> None:
    middle, end = top + 18, _LEFT + bar.value * per_percent
    text(svg, "label", _LEFT - 12, middle + 5, bar.label, "end")
    rectangle(svg, f"bar {bar.kind}", _LEFT, top + 5, end - _LEFT, 26)
    reach = (bar.spread or 0.0) * per_percent
    if reach:
        line(svg, "whisker", end - reach, middle, end + reach, middle)
    text(svg, "value", max(end + reach, end) + 8, middle + 5, f"{bar.value:.1f}", "start")


def metric_bars(name: str, title: str, metrics: Sequence[MetricBars]) -> str:
    """One block per metric: synthetic images, baseline and upper bound on the metric's own scale from 0."""
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
        text(svg, "tick", _LEFT + 78, y + 13, bar.label, "end")
        rectangle(svg, f"bar {bar.kind}", _LEFT + 90, y, max(width, 1.0), thin - 6)
        text(svg, "value", _LEFT + 98 + width, y + 13, value, "start")
