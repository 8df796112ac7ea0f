"""A measured number that says what it is and who may see it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Audience = Literal["public", "owner"]
Status = Literal["covered", "public", "private"]

STATUS_LABELS: dict[Status, str] = {
    "covered": "covered by the guarantee",
    "public": "public",
    "private": "private: owner only",
}


class Metric(NamedTuple):
    """What a kind of measure is called and what it means, in plain words."""

    title: str
    meaning: str


METRICS: dict[str, Metric] = {
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
}


class Measure(BaseModel):
    """One figure of a report.

    `covered`: computed from released artefacts only, or charged to the budget. `public`: depends on no private
    image. `private`: computed on private images without a charge; such a measure is always for the owner.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(description="Key of METRICS.")
    value: float = Field(description="Mean over the seeds.")
    unit: str
    audience: Audience
    status: Status
    protocol: str = Field(min_length=1, description="Classifier, epochs, sample count and reference set.")
    spread: float | None = Field(default=None, ge=0, description="Sample standard deviation over the seeds.")
    seeds: int = Field(default=1, ge=1)

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
