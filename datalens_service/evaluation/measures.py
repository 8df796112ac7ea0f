"""A measured number that says what it is, what it rests on, and who may see it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Audience = Literal["public", "owner"]
Status = Literal["covered", "public", "private"]
ReferenceKind = Literal["public", "hold-out", "private"]

STATUS_LABELS: dict[Status, str] = {
    "covered": "covered by the guarantee",
    "public": "public",
    "private": "private: owner only",
}


class Metric(NamedTuple):
    """What a kind of measure is called and what it means, in plain words."""

    title: str
    meaning: str


_ACCURACY: dict[str, Metric] = {
    "accuracy": Metric(
        "Trained on the synthetic images",
        "Share of real test images that a classifier labels correctly when it has seen synthetic images only.",
    ),
    "floor_averages": Metric(
        "Floor A: noisy class averages",
        "What one noisy average image per class reaches at the same ε and δ. A generator below it adds nothing.",
    ),
    "floor_moments": Metric(
        "Floor B: noisy moments, no votes",
        "What images from noisy class means and covariances alone reach at the same ε and δ.",
    ),
    "ceiling": Metric(
        "Ceiling: trained on the real images",
        "What the same classifier reaches when it may see the real training images.",
    ),
    "accuracy_resnet": Metric(
        "Stronger classifier, synthetic images",
        "The same share for a small residual network that has seen synthetic images only.",
    ),
    "floor_moments_resnet": Metric(
        "Stronger classifier, floor B", "What the residual network reaches on images from noisy moments alone."
    ),
    "ceiling_resnet": Metric(
        "Stronger classifier, ceiling", "What the residual network reaches when it may see the real training images."
    ),
    "accuracy_holdout": Metric(
        "Set-aside images, noisy count",
        "Share of the images of another private data set that classifier A labels correctly, with noise added and "
        "paid for from the budget of that data set.",
    ),
}

_CLASSIFIER: dict[str, Metric] = {
    "classifier_accuracy": Metric(
        "Released classifier", "Share of real test images that the released classifier labels correctly."
    ),
    "classifier_accuracy_holdout": Metric(
        "Released classifier, set-aside images, noisy count",
        "Share of the images of another private data set that the released classifier labels correctly, with noise "
        "added and paid for from the budget of that data set.",
    ),
}

EXTRACTOR_TITLES: dict[str, str] = {"domain": "domain extractor", "inception": "ImageNet Inception"}

_FIDELITY: dict[str, Metric] = {
    "fid": Metric("FID", "Distance of the features of synthetic and real images, as two Gaussians. Lower is closer."),
    "kid": Metric("KID", "The same question without the Gaussians, by a kernel; 0 on average for equal sets."),
    "precision": Metric("Precision", "Share of synthetic images that lie where real ones do: how real they look."),
    "recall": Metric("Recall", "Share of real images that lie where synthetic ones do: how much variety there is."),
    "score": Metric(
        "Inception score",
        "How sure the extractor is of each image and how evenly the classes occur. It does not see sameness within "
        "a class.",
    ),
}


def _fidelity_metrics() -> dict[str, Metric]:
    # Two extractors are two scales: no metric is shared between them, so that no table can mix them.
    return {
        f"{name}_{extractor}": Metric(f"{metric.title}, {title}", metric.meaning)
        for extractor, title in EXTRACTOR_TITLES.items()
        for name, metric in _FIDELITY.items()
    }


METRICS: dict[str, Metric] = {**_ACCURACY, **_CLASSIFIER, **_fidelity_metrics()}


class Basis(BaseModel):
    """What a fidelity figure rests on; without it the figure means nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    extractor: str = Field(description="Network whose features are compared.")
    weights_sha256: str = Field(description="Of the extractor's weights, hexadecimal.")
    library: str = Field(description="What computed the figure, with its version.")
    synthetic_images: int = Field(ge=1)
    reference: str = Field(description="What the synthetic images were compared with.")
    reference_kind: ReferenceKind
    reference_images: int = Field(ge=0, description="0 where the figure does not look at real images.")


class Measure(BaseModel):
    """One figure of a report.

    `covered`: computed from released artefacts and public images only, or charged to a budget. `public`: depends
    on no private image. `private`: computed on private images without a charge and therefore not private in the
    sense of the guarantee; such a measure is always for the owner.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(description="Key of METRICS.")
    value: float = Field(description="Mean over the seeds.")
    unit: str = Field(description="percent, distance or score.")
    audience: Audience
    status: Status
    protocol: str = Field(min_length=1, description="Classifier, epochs, sample count and reference set.")
    spread: float | None = Field(default=None, ge=0, description="Sample standard deviation over the seeds.")
    seeds: int = Field(default=1, ge=1)
    floor: float | None = Field(default=None, description="The same figure for one average real image per class.")
    ceiling: float | None = Field(default=None, description="The same figure for other real images.")
    basis: Basis | None = Field(default=None, description="Of a fidelity figure.")

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in METRICS:
            raise ValueError(f"{name} is not one of the metrics {', '.join(METRICS)}")
        return name

    @model_validator(mode="after")
    def _private_is_for_the_owner(self) -> Measure:
        if self.status == "private" and self.audience != "owner":
            raise ValueError("a private measure is for the owner only")
        return self

    @property
    def releasable(self) -> bool:
        """Whether anybody but the owner may see it."""
        return self.audience == "public" and self.status != "private"


class Unavailable(BaseModel):
    """A figure that was asked for and could not be had; for the owner."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    figure: str
    reason: str = Field(description="What to change; never a private value.")


class ClassFigure(BaseModel):
    """How one class fares; for the owner, since counts and accuracies of a class are private."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    classifier: str
    class_name: str
    test_images: int = Field(ge=0)
    accuracy: float | None = Field(description="Percent, trained on synthetic images; null without test images.")
    ceiling: float | None = Field(description="Percent, trained on real images; null if that was not measured.")
    taken_for: str | None = Field(description="Class that its images are most often mistaken for.")


class ConfusionTable(BaseModel):
    """How often each class was taken for each; for the owner, since counts of test images are private."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    class_names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...] = Field(description="A row per true class, a column per class that was given.")
    reference: str = Field(description="What the images are.")

    @model_validator(mode="after")
    def _square(self) -> ConfusionTable:
        size = len(self.class_names)
        if len(self.counts) != size or any(len(row) != size for row in self.counts):
            raise ValueError("a confusion table has a row and a column for each class")
        return self


def written(value: float, unit: str) -> str:
    """A figure for reading: percent and scores with two digits, small distances with three significant ones."""
    if unit == "percent":
        return f"{value:.2f} %"
    return f"{value:.2f}" if abs(value) >= 1 or unit == "score" else f"{value:.3g}"
