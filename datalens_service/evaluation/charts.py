"""Two drawings for the report, as SVG without a library: bars of accuracy, and the ε-δ curve.

Colours and fonts come from the page (classes `bar`, `axis`, `curve`, …), so that the drawings follow light, dark and
print. Elements are built as a tree, which escapes every text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree import ElementTree

from datalens_service.evaluation.summary import shown
from datalens_service.privacy.accounting import gaussian_delta

_WIDTH: Final = 720
# Edges of the ε-δ curve's window.
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 696, 16, 290


class Bar(NamedTuple):
    """One row of a bar chart: `value` and `spread` in percent; `kind` is a class of the style sheet."""

    label: str
    value: float
    spread: float | None
    kind: str


def accuracy_bars(bars: Sequence[Bar]) -> str:
    """Horizontal bars from 0 to 100 percent, with the spread as a whisker."""
    row, top, left, length = 40, 4, 268, 380
    height = top + row * len(bars) + 26
    named = "; ".join(f"{bar.label}: {bar.value:.1f} %" for bar in bars)
    svg = _canvas("accuracy", height, "Accuracy on real test images", named)
    for tick in range(0, 101, 25):
        x = left + length * tick / 100
        _line(svg, "grid", x, top, x, height - 22)
        _text(svg, "tick", x, height - 6, f"{tick} %", "middle")
    for index, bar in enumerate(bars):
        _bar(svg, bar, left, top + row * index, length / 100)
    return _xml(svg)


def _bar(svg: ElementTree.Element, bar: Bar, left: float, top: float, per_percent: float) -> None:
    middle, end = top + 18, left + bar.value * per_percent
    _text(svg, "label", left - 12, middle + 5, bar.label, "end")
    width = f"{end - left:.1f}"
    ElementTree.SubElement(
        svg, "rect", {"class": f"bar {bar.kind}", "x": f"{left}", "y": f"{top + 5}", "width": width, "height": "26"}
    )
    reach = (bar.spread or 0.0) * per_percent
    if reach:
        _line(svg, "whisker", end - reach, middle, end + reach, middle)
    _text(svg, "value", max(end + reach, end) + 8, middle + 5, f"{bar.value:.1f}", "start")


def epsilon_delta_curve(mu: float, epsilon: float, delta: float) -> str:
    """δ over ε for a μ-GDP release, on a logarithmic scale, with the requested point marked.

    Args:
        mu: Of everything the job was charged.
        epsilon: Of the marked point.
        delta: Of the marked point.
    """
    frame = _Frame(max(1.6 * epsilon, 0.1), math.ceil(-math.log10(delta)) + 3)
    label = f"ε = {shown(epsilon)} at δ = {shown(delta)}"
    svg = _canvas("curve", _BOTTOM + 46, "The ε-δ curve of this job", f"Every pair that holds; marked: {label}")
    _axes(svg, frame)
    points = " ".join(f"{frame.across(x):.1f},{frame.down(y):.1f}" for x, y in _curve(mu, frame))
    ElementTree.SubElement(svg, "polyline", {"class": "curve", "points": points})
    _mark(svg, frame.across(epsilon), frame.down(delta), label)
    return _xml(svg)


class _Frame(NamedTuple):
    """The window of the ε-δ curve: ε up to `largest`, δ down to 10^-decades."""

    largest: float
    decades: int

    def across(self, epsilon: float) -> float:
        """Where ε lies in the drawing."""
        return _LEFT + (_RIGHT - _LEFT) * epsilon / self.largest

    def down(self, delta: float) -> float:
        """Where δ lies in the drawing."""
        return _TOP + (_BOTTOM - _TOP) * -math.log10(delta) / self.decades


def _axes(svg: ElementTree.Element, frame: _Frame) -> None:
    for power in range(0, frame.decades + 1, 2):
        y = frame.down(10.0**-power)
        _line(svg, "grid", _LEFT, y, _RIGHT, y)
        _text(svg, "tick", _LEFT - 10, y + 5, "1" if power == 0 else f"1e-{power}", "end")
    for tick in _ticks(frame.largest):
        _text(svg, "tick", frame.across(tick), _BOTTOM + 20, f"{tick:g}", "middle")
    _line(svg, "axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    _text(svg, "tick", (_LEFT + _RIGHT) / 2, _BOTTOM + 42, "ε", "middle")
    _text(svg, "tick", 18, (_TOP + _BOTTOM) / 2, "δ", "middle")


def _mark(svg: ElementTree.Element, x: float, y: float, label: str) -> None:
    _line(svg, "guide", x, y, x, _BOTTOM)
    ElementTree.SubElement(svg, "circle", {"class": "mark", "cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "5"})
    _text(svg, "label strong", x + 12, y - 8, label, "start")


def _curve(mu: float, frame: _Frame) -> list[tuple[float, float]]:
    """Points (ε, δ) from ε = 0 to where δ leaves the drawing."""
    epsilons = [frame.largest * step / 160 for step in range(161)]
    points = [(epsilon, gaussian_delta(mu, epsilon)) for epsilon in epsilons]
    return [(epsilon, delta) for epsilon, delta in points if delta >= 10.0**-frame.decades]


def _ticks(largest: float) -> list[float]:
    """Round numbers from 0 to `largest`, four to nine of them."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(power * factor for factor in (0.1, 0.2, 0.25, 0.5, 1) if largest / (power * factor) <= 8)
    return [round(step * index, 10) for index in range(math.floor(largest / step) + 1)]


def _canvas(name: str, height: float, title: str, description: str) -> ElementTree.Element:
    box = f"0 0 {_WIDTH} {height:g}"
    attributes = {"viewBox": box, "role": "img", "aria-labelledby": f"{name}-title {name}-text", "class": "chart"}
    svg = ElementTree.Element("svg", attributes)
    ElementTree.SubElement(svg, "title", {"id": f"{name}-title"}).text = title
    ElementTree.SubElement(svg, "desc", {"id": f"{name}-text"}).text = description
    return svg


def _line(svg: ElementTree.Element, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    ElementTree.SubElement(svg, "line", {"class": kind, **ends})


def _text(svg: ElementTree.Element, kind: str, x: float, y: float, text: str, anchor: str) -> None:
    place = {"class": kind, "x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor}
    ElementTree.SubElement(svg, "text", place).text = text


def _xml(svg: ElementTree.Element) -> str:
    return ElementTree.tostring(svg, encoding="unicode")
