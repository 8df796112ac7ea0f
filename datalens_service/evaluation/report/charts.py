"""Two drawings of the privacy loss: the ε-δ curve, and ε release by release."""

import itertools
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from datalens_service.evaluation.report.drawing import Element, canvas, line, mark, polyline, text, ticks, xml
from datalens_service.evaluation.report.summary import shown
from datalens_service.privacy.accounting import gaussian_delta

# Edges of the window.
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 696, 16, 290
_MOST_EPSILON_MARGIN: Final = 1.15


class Spent(NamedTuple):
    """ε after so many releases."""

    releases: int
    epsilon: float


def epsilon_delta_curve(mu: float, epsilon: float, delta: float, slack: float = 0.0) -> str:
    """δ over ε for a μ-GDP release, on a logarithmic scale, with the requested point marked."""
    frame = _Frame(max(1.6 * epsilon, 0.1), math.ceil(-math.log10(delta)) + 3)
    label = f"ε = {shown(epsilon)} at δ = {shown(delta)}"
    svg = canvas("curve", _BOTTOM + 46, "The ε-δ curve of this job", f"Every pair that holds; marked: {label}")
    _axes(svg, frame)
    polyline(svg, "curve", [(frame.across(x), frame.down(y)) for x, y in _curve(mu, slack, frame)])
    _marked(svg, frame.across(epsilon), frame.down(delta), label)
    return xml(svg)


def epsilon_over_releases(path: Sequence[Spent], limit: float, delta: float) -> str:
    """ε of the running account after each release, as a staircase below the job's limit."""
    last = path[-1]
    description = f"{last.releases} releases; ε = {shown(last.epsilon)} at δ = {shown(delta)} at the end"
    svg = canvas("spend", _BOTTOM + 46, "ε over the releases of this job", description)
    highest = max(limit, last.epsilon) * _MOST_EPSILON_MARGIN
    _spend_axes(svg, last.releases, highest)
    stairs = [point for before, after in itertools.pairwise(path) for point in _stair(before, after)]
    places = [(_across(x, last.releases), _up(y, highest)) for x, y in [(0.0, 0.0), *stairs]]
    polyline(svg, "curve", places)
    y = _up(limit, highest)
    line(svg, "guide", _LEFT, y, _RIGHT, y)
    text(svg, "label", _LEFT + 8, y - 8, f"limit of the job: ε = {shown(limit)} at δ = {shown(delta)}", "start")
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
        text(svg, "tick", _LEFT - 10, y + 5, f"{tick:g}", "end")
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
        """Where ε lies in the drawing."""
        return _LEFT + (_RIGHT - _LEFT) * epsilon / self.largest

    def down(self, delta: float) -> float:
        """Where δ lies in the drawing."""
        return _TOP + (_BOTTOM - _TOP) * -math.log10(delta) / self.decades


def _axes(svg: Element, frame: _Frame) -> None:
    for power in range(0, frame.decades + 1, 2):
        y = frame.down(10.0**-power)
        line(svg, "grid", _LEFT, y, _RIGHT, y)
        text(svg, "tick", _LEFT - 10, y + 5, "1" if power == 0 else f"1e-{power}", "end")
    for tick in ticks(frame.largest):
        text(svg, "tick", frame.across(tick), _BOTTOM + 20, f"{tick:g}", "middle")
    line(svg, "axis", _LEFT, _BOTTOM, _RIGHT, _BOTTOM)
    text(svg, "tick", (_LEFT + _RIGHT) / 2, _BOTTOM + 42, "ε", "middle")
    text(svg, "tick", 18, (_TOP + _BOTTOM) / 2, "δ", "middle")


def _marked(svg: Element, x: float, y: float, label: str) -> None:
    line(svg, "guide", x, y, x, _BOTTOM)
    mark(svg, x, y)
    text(svg, "label strong", x + 12, y - 8, label, "start")


def _curve(mu: float, slack: float, frame: _Frame) -> list[tuple[float, float]]:
    """Points (ε, δ) from ε = 0 to where δ leaves the drawing."""
    epsilons = [frame.largest * step / 160 for step in range(161)]
    points = [(epsilon, gaussian_delta(mu, epsilon) + slack) for epsilon in epsilons]
    return [(epsilon, delta) for epsilon, delta in points if delta >= 10.0**-frame.decades]
