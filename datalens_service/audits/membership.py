"""The success of a membership attack: how well its scores tell members from others, beside what μ allows.

Every figure is a lower bound on the success of an attacker. A weak attack proves nothing; a strong one proves leakage.
"""

import math
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from datalens_service.base.errors import InvalidInput
from datalens_service.report.attacks import RocPoint

Scores = NDArray[np.float64]
Interval = tuple[float, float]

CONFIDENCE: Final = 0.95
FALSE_POSITIVE_RATES: Final = (0.01, 0.001)
CURVE_RATES: Final = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, *(step / 20 for step in range(1, 21)))


class OperatingPoint(BaseModel):
    """True positives at a fixed rate of false ones.

    Attributes:
        false_positive_rate: Share of non-members called members, at most.
        true_positive_rate: Share of members called members.
        interval: 95 % interval of the true positive rate (Clopper and Pearson 1934).
        allowed: Largest true positive rate that μ allows.
    """

    model_config = ConfigDict(frozen=True)

    false_positive_rate: float
    true_positive_rate: float
    interval: Interval
    allowed: float | None


class MembershipFigures(BaseModel):
    """Figures of one attack.

    Attributes:
        members: Candidates that the model learned from.
        non_members: Candidates that it did not.
        auc: Probability that a member scores above a non-member; one half is chance.
        interval: 95 % interval of `auc` (DeLong et al. 1988).
        auc_allowed: Largest area that μ allows, Φ(μ/√2); None where no μ holds.
        operating_points: At small rates of false positives, where attacks matter most (Carlini et al. 2022).
        curve: The ROC curve at fixed rates of false positives, beside the one that μ allows.
    """

    model_config = ConfigDict(frozen=True)

    members: int
    non_members: int
    auc: float
    interval: Interval
    auc_allowed: float | None
    operating_points: tuple[OperatingPoint, ...]
    curve: tuple[RocPoint, ...]


def measure(members: Scores, non_members: Scores, mu: float | None) -> MembershipFigures:
    """Measure scores that are high where a record looks like a member.

    Args:
        members: (n,) scores of records that the model learned from.
        non_members: (m,) scores of records that it did not.
        mu: Gaussian differential privacy of the model for one record; None if it has none.

    Raises:
        InvalidInput: There are fewer than two candidates on a side.
    """
    if min(len(members), len(non_members)) < 2:
        raise InvalidInput("A membership attack needs at least two members and two others.")
    auc, interval = area_under_curve(members, non_members)
    points = tuple(_operating_point(members, non_members, rate, mu) for rate in FALSE_POSITIVE_RATES)
    return MembershipFigures(
        members=len(members),
        non_members=len(non_members),
        auc=auc,
        interval=interval,
        auc_allowed=None if mu is None else float(scipy.stats.norm.cdf(mu / math.sqrt(2))),
        operating_points=points,
        curve=tuple(_curve_point(members, non_members, rate, mu) for rate in CURVE_RATES),
    )


def area_under_curve(members: Scores, non_members: Scores) -> tuple[float, Interval]:
    """Return the area under the ROC curve and its 95 % interval (DeLong et al. 1988, by placements)."""
    placed, others_placed = _share_below(members, non_members), 1 - _share_below(non_members, members)
    area = float(placed.mean())
    variance = placed.var(ddof=1) / len(members) + others_placed.var(ddof=1) / len(non_members)
    reach = float(scipy.stats.norm.ppf((1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return area, (max(0.0, area - reach), min(1.0, area + reach))


def true_positives_allowed(mu: float, false_positive_rate: float) -> float:
    """Return the largest true positive rate under μ-GDP, Φ(Φ⁻¹(FPR) + μ) (Dong, Roth and Su 2022, section 2)."""
    return float(scipy.stats.norm.cdf(scipy.stats.norm.ppf(false_positive_rate) + mu))


def _share_below(scores: Scores, others: Scores) -> Scores:
    """Return the share of the others that lie below each score (scores,); ties count one half."""
    ordered = np.sort(others)
    below, up_to = np.searchsorted(ordered, scores, "left"), np.searchsorted(ordered, scores, "right")
    shares: Scores = (below + up_to) / (2 * len(others))
    return shares


def _operating_point(members: Scores, non_members: Scores, rate: float, mu: float | None) -> OperatingPoint:
    """Measure at the smallest threshold that calls at most a share `rate` of the non-members members."""
    hits = _hits(members, non_members, rate)
    interval = scipy.stats.binomtest(hits, len(members)).proportion_ci(CONFIDENCE, "exact")
    return OperatingPoint(
        false_positive_rate=rate,
        true_positive_rate=hits / len(members),
        interval=(float(interval.low), float(interval.high)),
        allowed=None if mu is None else true_positives_allowed(mu, rate),
    )


def _curve_point(members: Scores, non_members: Scores, rate: float, mu: float | None) -> RocPoint:
    return RocPoint(
        false_positive_rate=rate,
        true_positive_rate=_hits(members, non_members, rate) / len(members),
        allowed=None if mu is None else true_positives_allowed(mu, rate),
    )


def _hits(members: Scores, non_members: Scores, rate: float) -> int:
    """Count the members found at the smallest threshold that calls at most a share `rate` of the others members."""
    permitted = math.floor(rate * len(non_members))
    if permitted >= len(non_members):
        return len(members)
    threshold = np.sort(non_members)[::-1][permitted]
    return int((members > threshold).sum())
