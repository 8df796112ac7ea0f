"""The registry of attacks, and the scores of those that tell members from others."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
import scipy

from datalens_service.audits.evidence import Evidence
from datalens_service.audits.membership import Scores
from datalens_service.errors import InvalidInput

_SMALLEST_SPREAD: Final = 1e-6


class MembershipAttack(NamedTuple):
    """Tells records that a model learned from.

    Attributes:
        needs_references: Whether it compares with models that never saw the candidate.
    """

    score: Callable[[Evidence], Scores]
    needs_references: bool
    source: str


class ReconstructionAttack(NamedTuple):
    """Searches for the image behind a gradient."""

    source: str


def score_by_loss(evidence: Evidence) -> Scores:
    """A record that fits well is called a member."""
    return evidence.target


def score_by_reference(evidence: Evidence) -> Scores:
    """Share of reference models that the record fits less well than the audited one, smoothed as (j + ½)/(K + 1).

    Between two order statistics the share is interpolated, so that few references give more than few scores.
    """
    _check_references(evidence)
    ordered = np.sort(evidence.references, axis=0)
    count = len(ordered)
    shares = (np.arange(count) + 0.5) / (count + 1)
    scores: Scores = np.array(
        [
            np.interp(fit, column, shares) + _beyond(fit, column) / (count + 1)
            for fit, column in zip(evidence.target, ordered.T, strict=True)
        ]
    )
    return scores


def score_by_likelihood(evidence: Evidence) -> Scores:
    """Offline likelihood ratio: how far above a normal law of the references the record fits.

    The law has the mean of each record's own references and a spread that all records share, since eight references
    give no usable variance of their own.
    """
    _check_references(evidence)
    means = evidence.references.mean(axis=0)
    spread = max(float(np.sqrt(evidence.references.var(axis=0, ddof=1).mean())), _SMALLEST_SPREAD)
    scores: Scores = scipy.stats.norm.logsf((means - evidence.target) / spread)
    return scores


def _beyond(fit: float, ordered: Scores) -> float:
    """In (−½, ½): how far outside of all references a fit lies; 0 between them."""
    spread = max(float(ordered[-1] - ordered[0]), _SMALLEST_SPREAD)
    excess = max(fit - ordered[-1], 0.0) + min(fit - ordered[0], 0.0)
    return float(np.arctan(excess / spread) / np.pi)


def _check_references(evidence: Evidence) -> None:
    if len(evidence.references) < 2:
        raise InvalidInput("This attack compares with reference models: train at least two.")


MEMBERSHIP: Final[dict[str, MembershipAttack]] = {
    "loss_threshold": MembershipAttack(score_by_loss, False, "Yeom et al. 2018"),
    "reference": MembershipAttack(score_by_reference, True, "Ye et al. 2022"),
    "likelihood_ratio": MembershipAttack(score_by_likelihood, True, "Carlini et al. 2022, offline"),
}
"""By name, weakest first."""

RECONSTRUCTION: Final[dict[str, ReconstructionAttack]] = {"inversion": ReconstructionAttack("Geiping et al. 2020")}

ATTACKS: Final[dict[str, MembershipAttack | ReconstructionAttack]] = {**MEMBERSHIP, **RECONSTRUCTION}
"""All that an audit may be asked for."""
