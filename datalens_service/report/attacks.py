"""Findings of attacks, as reports state them: figures in the owner's copy, and where they are in the other one.

The ROC curve of a membership attack is drawn beside the one that μ allows.
"""

from collections.abc import Sequence
from typing import Final

from pydantic import Field

from datalens_service.base.audience import Public
from datalens_service.base.fields import Finite
from datalens_service.report.drawing import Element, canvas, line, polyline, text, ticks, xml

OWNER_NOTICE: Final = (
    "What attacks reached on models of this method at this ε. The figures depend on private images, the guarantee does "
    "not cover them, and they are not to be passed on. They are lower bounds: a weak attack proves nothing."
)
RELEASABLE_NOTICE: Final = (
    "The owner asked for attacks on this method at this ε. What they found depends on private images, so it lies with "
    "the owner."
)


class RocPoint(Finite):
    """A point of the curve of an attack.

    Attributes:
        false_positive_rate: Share of non-members called members, at most.
        true_positive_rate: Share of members called members.
        allowed: Largest true positive rate that μ allows; None where no μ holds.
    """

    false_positive_rate: float
    true_positive_rate: float
    allowed: float | None


class AttackFinding(Finite):
    """The private result of one attack."""

    audit: str = Field(description="Id of the audit.")
    target: str = Field(description="What was attacked, in words.")
    attack: str
    source: str
    members: int
    non_members: int
    auc: float = Field(description="Area under the ROC curve; one half is chance.")
    interval: tuple[float, float] = Field(description="95 % of the area.")
    auc_allowed: float | None = Field(description="Largest area that μ allows.")
    curve: tuple[RocPoint, ...]


class AttacksSection(Finite):
    """F23: attacks, in reports on jobs whose owner had asked for some when the report was written."""

    notice: Public[str]
    findings: tuple[AttackFinding, ...] = Field(default=(), description="Stated in the owner's copy only.")


# Edges of the window.
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 396, 40, 360
_LEGEND: Final = _RIGHT + 28


def roc_curve(name: str, attack: str, points: Sequence[RocPoint]) -> str:
    """Draw the curve of an attack, that of guessing, and the one that no attack on a private model can cross."""
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
