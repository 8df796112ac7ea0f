"""The growth of the privacy loss release by release, and every pair of ε and δ that it amounts to."""

from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import Field

from datalens_service.base.audience import Public
from datalens_service.base.fields import Frozen, Stated
from datalens_service.mechanisms import PlannedRelease
from datalens_service.privacy.accounting import Charge, delta_beside, stated_epsilon, stated_mu

_MOST_POINTS: Final = 100
# δ at half decades from a tenth down to 1e-12.
_CURVE_DELTAS: Final = tuple(float(f"{digit}e-{power}") for power in range(1, 13) for digit in (3, 1))


class SpendPoint(Frozen):
    """The loss after so many releases; ε is rounded up."""

    releases: Public[int] = Field(ge=0, description="Made so far.")
    release: Public[str] = Field(description="The last of them.")
    ledger_units: Public[int] = Field(alias="units", ge=0, description="Charged so far, in 1e-15 of μ².")
    mu: Public[Stated]
    epsilon: Public[Stated] = Field(description="ε at the requested δ; a running account.")


class CurvePoint(Frozen):
    """A pair that holds; ε is rounded up."""

    delta: Public[Stated]
    epsilon: Public[Stated]


def spend_path(releases: Sequence[PlannedRelease], charged: Charge, delta: float) -> tuple[SpendPoint, ...]:
    """Return the account of a job after each release: about a hundred points at most, the last with everything charged.

    Args:
        releases: In order.
        charged: The charge in the ledger; more than the releases cost if a crash lost one.
    """
    total = sum(release.count for release in releases)
    every = max(1, total // _MOST_POINTS)
    steps = [(made, label, spent) for made, label, spent in _walked(releases) if made % every == 0 or made == total]
    points = [_point(0, "before the first release", Charge(0), delta), *(_point(*step, delta) for step in steps)]
    if points[-1].ledger_units < charged.ledger_units:
        points.append(_point(total, "charged again after a crash", charged, delta))
    return tuple(points)


def curve(charged: Charge) -> tuple[CurvePoint, ...]:
    """Return ε over δ of everything charged; all pairs hold at once. Below the slack there is no ε."""
    return tuple(
        CurvePoint(delta=delta, epsilon=stated_epsilon(charged, delta))
        for delta in _CURVE_DELTAS
        if delta_beside(charged.slack, delta) > 0
    )


def _walked(releases: Sequence[PlannedRelease]) -> Iterator[tuple[int, str, Charge]]:
    before, ledger_units, slack = 0, 0, 0
    for release in releases:
        for made in range(1, release.count + 1):
            spent = release.charge_after(made)
            yield before + made, release.label, Charge(ledger_units + spent.ledger_units, slack + spent.slack)
        whole = release.charge_after(release.count)
        before, ledger_units, slack = before + release.count, ledger_units + whole.ledger_units, slack + whole.slack


def _point(made: int, label: str, charged: Charge, delta: float) -> SpendPoint:
    return SpendPoint(
        releases=made,
        release=label,
        ledger_units=charged.ledger_units,
        mu=stated_mu(charged.ledger_units),
        epsilon=stated_epsilon(charged, delta),
    )
