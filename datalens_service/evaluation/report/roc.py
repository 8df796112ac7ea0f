"""A drawing of what a membership attack reached: its ROC curve beside the one that μ allows."""

from collections.abc import Sequence
from typing import Final

from datalens_service.evaluation.report.attacks import RocPoint
from datalens_service.evaluation.report.drawing import Element, canvas, line, polyline, text, ticks, xml

# Edges of the window.
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 396, 40, 360
_LEGEND: Final = _RIGHT + 28


def roc_curve(name: str, attack: str, points: Sequence[RocPoint]) -> str:
    """The curve of an attack, that of guessing, and the one that no attack on a private model can cross."""
    svg = canvas(name, _BOTTOM + 46, f"ROC curve of {attack}", "Members found over records that are called so wrongly")
    _axes(svg)
    line(svg, "axis", _across(0), _down(0), _across(1), _down(1))
    allowed = [(_across(one.false_positive_rate), _down(one.allowed)) for one in points if one.allowed is not None]
    if allowed:
        polyline(svg, "curve bound", allowed)
    polyline(svg, "curve", [(_across(one.false_positive_rate), _down(one.true_positive_rate)) for one in points])
    _legend(svg, attack, bounded=bool(allowed))
    return xml(svg)


def _axes(svg: Element) -> None:
    for tick in ticks(1.0):
        line(svg, "grid", _LEFT, _down(tick), _RIGHT, _down(tick))
        text(svg, "tick", _LEFT - 10, _down(tick) + 5, f"{tick:g}", "end")
        text(svg, "tick", _across(tick), _BOTTOM + 20, f"{tick:g}", "middle")
    text(svg, "tick", (_LEFT + _RIGHT) / 2, _BOTTOM + 42, "false positives", "middle")
    text(svg, "tick", _LEFT, _TOP - 20, "members found", "start")


def _legend(svg: Element, attack: str, *, bounded: bool) -> None:
    rows = [("curve", attack), ("axis", "guessing"), *([("curve bound", "allowed by μ")] if bounded else [])]
    for number, (kind, label) in enumerate(rows):
        y = _TOP + 12 + 26 * number
        polyline(svg, kind, [(_LEGEND, y), (_LEGEND + 28, y)])
        text(svg, "label", _LEGEND + 38, y + 5, label, "start")


def _across(rate: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * rate


def _down(rate: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * rate
