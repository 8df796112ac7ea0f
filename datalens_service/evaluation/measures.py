"""Measured numbers, each with its meaning, its basis and its audience."""

import math
import operator
import statistics
from collections.abc import Sequence
from typing import Final, Self

from pydantic import Field, field_validator, model_validator
from scipy.special import stdtrit

from datalens_service.base.audience import FigureAudience, Public
from datalens_service.base.fields import Finite, Frozen
from datalens_service.evaluation.metrics import METRICS
from datalens_service.evaluation.metrics.metric import Metric
from datalens_service.evaluation.metrics.outcome import OWNER_ONLY, Basis, MetricResult, Standing, Status

_CONFIDENCE: Final = 0.95
_FEWEST_FOR_AN_INTERVAL: Final = 3
"""Fewest values for an interval: of two, Student's interval is 18 times as long as their distance."""

STATUS_LABELS: dict[Status, str] = {
    "covered": "covered by the guarantee",
    "public": "public",
    "private": "private: owner only",
}


class Measure(Finite):
    """One figure of a report.

    `covered`: computed from released artefacts and public images only, or charged to a budget. `public`: depends
    on no private image. `private`: computed on private images without a charge and therefore not private in the
    sense of the guarantee; such a measure is always for the owner.
    """

    name: Public[str] = Field(description="Key of METRICS.")
    value: Public[float] = Field(description="Mean over the seeds.")
    unit: Public[str] = Field(description="percent, distance or score.")
    audience: Public[FigureAudience]
    status: Public[Status]
    protocol: Public[str] = Field(min_length=1, description="Classifier, epochs, sample count and reference set.")
    spread: Public[float | None] = Field(default=None, ge=0, description="Sample standard deviation over the seeds.")
    seeds: Public[int] = Field(default=1, ge=1)
    confidence_interval: Public[tuple[float, float] | None] = Field(
        default=None,
        exclude_if=operator.not_,
        description="95 % confidence interval of the mean over seeds, by Student's t; it knows nothing of how the test "
        "images were chosen.",
    )
    balanced: Public[float | None] = Field(
        default=None, exclude_if=operator.not_, description="Mean of the accuracy over classes, and over the seeds."
    )
    balanced_spread: Public[float | None] = Field(
        default=None, exclude_if=operator.not_, ge=0, description="Sample standard deviation of that over the seeds."
    )
    floor: Public[float | None] = Field(
        default=None, description="The same figure for one average real image per class."
    )
    ceiling: Public[float | None] = Field(default=None, description="The same figure for other real images.")
    basis: Public[Basis | None] = Field(
        default=None, description="Basis of a fidelity figure: extractor, images and reference."
    )

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in METRICS:
            raise ValueError(f"{name} is not one of the metrics {', '.join(METRICS)}")
        return name

    @model_validator(mode="after")
    def _private_is_for_the_owner(self) -> Self:
        if self.status == "private" and self.audience != "owner":
            raise ValueError("a private measure is for the owner only")
        if METRICS[self.name].reads == "training" and (self.audience, self.status) != OWNER_ONLY:
            raise ValueError(f"{self.name} reads private training images and is for the owner only")
        return self

    @property
    def releasable(self) -> bool:
        """Tell whether anybody but the owner may see it."""
        return self.audience == "public" and self.status != "private" and METRICS[self.name].reads != "training"


def measured(metric: Metric, outcome: MetricResult, standing: Standing) -> Measure:
    """Return the figure of a metric, for those who may see what it read."""
    values = outcome.values
    return Measure(
        name=metric.name,
        value=statistics.fmean(values),
        unit=metric.unit,
        audience=standing.audience,
        status=standing.status,
        protocol=outcome.protocol,
        spread=_spread(values),
        balanced=statistics.fmean(outcome.balanced) if outcome.balanced else None,
        balanced_spread=_spread(outcome.balanced),
        seeds=len(values),
        confidence_interval=_confidence_interval(values, metric.unit),
        floor=outcome.baseline,
        ceiling=outcome.of_real_images,
        basis=outcome.basis,
    )


def _spread(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _confidence_interval(values: Sequence[float], unit: str) -> tuple[float, float] | None:
    """Return the confidence interval of the mean, within 0 to 100 for percent."""
    if len(values) < _FEWEST_FOR_AN_INTERVAL:
        return None
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    reach = float(stdtrit(len(values) - 1, (1 + _CONFIDENCE) / 2)) * spread / math.sqrt(len(values))
    low, high = mean - reach, mean + reach
    return (max(0.0, low), min(100.0, high)) if unit == "percent" else (low, high)


class Unavailable(Frozen):
    """A figure that was asked for and could not be computed; for the owner."""

    figure: str
    reason: str = Field(description="What to change; never a private value.")


class ConfusionTable(Frozen):
    """Counts of test images by true and predicted class; for the owner, since such counts are private."""

    class_names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...] = Field(description="A row per true class, a column per class that was given.")
    reference: str = Field(description="What the images are.")

    @model_validator(mode="after")
    def _square(self) -> Self:
        size = len(self.class_names)
        if len(self.counts) != size or any(len(row) != size for row in self.counts):
            raise ValueError("a confusion table has a row and a column for each class")
        return self


class ClassFigure(Finite):
    """The figures of one class; for the owner, since counts and accuracies of a class are private."""

    classifier: str
    class_name: str
    test_images: int = Field(ge=0)
    accuracy: float | None = Field(description="Percent, trained on synthetic images; null without test images.")
    ceiling: float | None = Field(description="Percent, trained on real images; null if that was not measured.")
    taken_for: str | None = Field(description="Class that its images are most often mistaken for.")


class Measurements(Frozen):
    """Everything that was measured, for the owner.

    Attributes:
        unavailable: Figures that were asked for and could not be computed.
        confusion: The table of a classifier.
        person_caveats: Caveats for the owner about persons in the images that were measured on.
    """

    measures: tuple[Measure, ...] = ()
    per_class: tuple[ClassFigure, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    confusion: ConfusionTable | None = None
    person_caveats: tuple[str, ...] = ()


def written(value: float, unit: str) -> str:
    """Format a figure for reading: percent and scores with two digits, small distances with three significant ones."""
    if unit == "percent":
        return f"{value:.2f} %"
    return f"{value:.2f}" if abs(value) >= 1 or unit == "score" else f"{value:.3g}"
