"""Results of a metric, and the kinds of images that decide who may see them.

The kind of images that a metric reads alone decides who may see it: a metric returns values, never an audience.

public      public numbers alone              for everybody
released    also released artefacts           for everybody
test        also the owner's test images      as the owner declared these images
reference   also the images of `reference`    as the owner declared these images
training    also private training images      for the owner alone
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

import numpy as np
from pydantic import Field

from datalens_service.base.audience import FigureAudience, Public
from datalens_service.base.fields import Frozen
from datalens_service.data.dataset import Labels
from datalens_service.evaluation.settings import EvaluationSettings

Status = Literal["covered", "public", "private"]
ReferenceKind = Literal["public", "hold-out", "private"]
Reads = Literal["public", "released", "test", "reference", "training"]


class Standing(NamedTuple):
    """The audience of a value, and its relation to the guarantee."""

    audience: FigureAudience
    status: Status


OWNER_ONLY = Standing("owner", "private")


class Score(NamedTuple):
    """Percent of images that were labelled rightly, and the mean of that over their classes."""

    accuracy: float
    balanced: float

    @classmethod
    def from_labels(cls, given: Labels, right: Labels) -> Self:
        """Score labels (m,) against the right ones."""
        hits = given == right
        per_class = [hits[right == label].mean() for label in np.unique(right)]
        return cls(100 * float(hits.mean()), 100 * float(np.mean(per_class)))


class Basis(Frozen):
    """The basis of a fidelity figure, without which the figure means nothing."""

    extractor: Public[str] = Field(description="Network whose features are compared.")
    weights_sha256: Public[str] = Field(
        description="SHA-256 of the extractor's weights, or of the module of a plug-in, hexadecimal."
    )
    library: Public[str] = Field(description="What computed the figure, with its version.")
    synthetic_images: Public[int] = Field(ge=1)
    reference: Public[str] = Field(description="What the synthetic images were compared with.")
    reference_kind: Public[ReferenceKind]
    reference_images: Public[int] = Field(ge=0, description="0 where the figure does not look at real images.")


@dataclass(frozen=True)
class MetricResult:
    """The result of a metric.

    Attributes:
        values: One per seed, in the metric's unit.
        protocol: The way it was measured, for a reader who wants to repeat it.
        balanced: The same of each seed as a mean over classes; empty of figures that are no accuracy.
        of_real_images: The same for other real images.
    """

    values: tuple[float, ...]
    protocol: str
    baseline: float | None = None
    of_real_images: float | None = None
    basis: Basis | None = None
    balanced: tuple[float, ...] = ()

    @classmethod
    def from_scores(cls, scores: Sequence[Score], protocol: str) -> Self:
        """Accuracy of each seed."""
        accuracies, balanced = zip(*scores, strict=True)
        return cls(accuracies, protocol, balanced=balanced)


@dataclass(frozen=True)
class PublicFacts:
    """Public facts that decide which metrics a job has, and in how many steps: none depends on private records.

    Attributes:
        num_units: Privacy units of the training images.
        has_reference: True if there are images to compare with for fidelity.
        has_moments: True if a `moments` generator was made at the same budget.
    """

    settings: EvaluationSettings
    num_units: int
    has_test: bool
    has_reference: bool
    has_moments: bool

    def provide(self, reads: Reads) -> bool:
        """Tell whether images of this kind exist."""
        return {"test": self.has_test, "reference": self.has_reference}.get(reads, True)
