"""The registry of attacks, and the scores of those that tell members from others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from datalens_service.audits.membership import Scores
from datalens_service.base.errors import InvalidInput
from datalens_service.data.dataset import Images, Labels, Split
from datalens_service.models.generators.generator import Generator

if TYPE_CHECKING:
    from datalens_service.models.classifiers.classifier import Classifier
    from datalens_service.models.released import ReleasedModel


Fits = NDArray[np.float64]

_SAMPLES: Final = 10_000
_SMALLEST: Final = 1e-12
_ROWS: Final = 256


@dataclass(frozen=True)
class Evidence:
    """Numbers that depend on private records: for their owner alone.

    Attributes:
        target: (n,) fit of every candidate to the audited model.
        references: (models, n) the same for models that learned from none of the candidates.
        is_member: (n,) True if the audited model learned from the candidate.
    """

    target: Fits
    references: Fits
    labels: Labels
    is_member: NDArray[np.bool_]

    def group_units(self, units: NDArray[np.int64]) -> Evidence:
        """Average the fits of each privacy unit's records, so that a unit is one candidate."""
        _, first, numbers, counts = np.unique(units, return_index=True, return_inverse=True, return_counts=True)
        if len(counts) == len(units):
            return self
        means = [np.bincount(numbers, fits) / counts for fits in (self.target, *self.references)]
        several = np.bincount(numbers, self.labels != self.labels[first][numbers]) > 0
        labels = np.where(several, -1, self.labels[first])
        return Evidence(means[0], np.array(means[1:]).reshape(-1, len(counts)), labels, self.is_member[first])


def measure_fit(model: ReleasedModel, candidates: Split) -> Fits:
    """Measure how well each candidate fits a released model (n,); higher where the model may have learned from it.

    Raises:
        InvalidInput: No measure is known for this kind of model.
    """
    kind = next((kind for kind in model.evaluations if kind in _FITS), None)
    if kind is None:
        raise InvalidInput(f"Nothing measures how well a record fits a {model.result}.")
    return _FITS[kind](model, candidates)


def classifier_confidence(model: Classifier, candidates: Split) -> Fits:
    """Return the log odds of the true class, log p − log(1 − p) (Carlini et al. 2022, section IV-C)."""
    probabilities = model.predict(candidates.images).astype(np.float64)
    rows = np.arange(len(candidates.labels))
    true = probabilities[rows, candidates.labels]
    probabilities[rows, candidates.labels] = 0
    # The sum of the others keeps digits that one minus a float32 near one has lost.
    others = probabilities.sum(axis=1)
    fits: Fits = np.log(np.maximum(true, _SMALLEST)) - np.log(np.maximum(others, _SMALLEST))
    return fits


def nearness_to_samples(model: Generator, candidates: Split) -> Fits:
    """Return minus the logarithm of the distance to the nearest of 10,000 samples of the candidate's class.

    Hilprecht et al. 2019 and Chen et al. 2020 attack released generators by this distance.
    """
    images, labels = model.sample(_SAMPLES, seed=0)
    fits = np.zeros(len(candidates.labels))
    for label in np.unique(candidates.labels):
        rows = np.flatnonzero(candidates.labels == label)
        fits[rows] = -0.5 * np.log(_squared_distances(candidates.images[rows], images[labels == label]) + _SMALLEST)
    return fits


def _squared_distances(images: Images, samples: Images) -> Fits:
    """Return the squared distance of each image to its nearest sample (n,), pixels in [0, 1]."""
    points = samples.reshape(len(samples), -1).astype(np.float64) / 255
    lengths = (points**2).sum(axis=1)
    nearest = [np.zeros(0)]
    for start in range(0, len(images), _ROWS):
        rows = images[start : start + _ROWS].reshape(-1, points.shape[1]).astype(np.float64) / 255
        nearest.append((lengths - 2 * rows @ points.T).min(axis=1) + (rows**2).sum(axis=1))
    return np.maximum(np.concatenate(nearest), 0)


_FITS: Final[dict[str, Callable[[Any, Split], Fits]]] = {
    "predictions": classifier_confidence,
    "images": nearness_to_samples,
}


_SMALLEST_SPREAD: Final = 1e-6


class MembershipAttack(NamedTuple):
    """An attack that tells records that a model learned from.

    With `needs_references` it compares with models that never saw the candidate.
    """

    score: Callable[[Evidence], Scores]
    needs_references: bool
    source: str


def score_by_loss(evidence: Evidence) -> Scores:
    """Score by fit alone: a record that fits well is called a member."""
    return evidence.target


def score_by_reference(evidence: Evidence) -> Scores:
    """Score by the share of reference models that the record fits less well than the audited one, as (j + ½)/(K + 1).

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
    """Score by the offline likelihood ratio: how far above a normal law of the references the record fits.

    The law has the mean of each record's own references and a spread that all records share, since eight references
    give no usable variance of their own.
    """
    _check_references(evidence)
    means = evidence.references.mean(axis=0)
    spread = max(float(np.sqrt(evidence.references.var(axis=0, ddof=1).mean())), _SMALLEST_SPREAD)
    scores: Scores = scipy.stats.norm.logsf((means - evidence.target) / spread)
    return scores


def _beyond(fit: float, ordered: Scores) -> float:
    """Return how far outside of all references a fit lies, in (−½, ½); 0 between them."""
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
"""All attacks on membership by name, weakest first."""

INVERSION: Final = "inversion"
"""The search for the image behind a gradient."""

ATTACKS: Final = (*MEMBERSHIP, INVERSION)
"""Names of all attacks that an audit may include."""
