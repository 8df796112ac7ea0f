"""What a job measures after training; part of the spec, so this module imports no torch."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class EvaluationSettings(BaseModel):
    """How the usefulness of the synthetic images is measured on the owner's own test split.

    Nothing here spends budget: what is measured on private images is for the owner alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(default=True, description="Measure at all; without a test split nothing is measured.")
    synthetic_images: int = Field(
        default=30_000, ge=1, le=1_000_000, description="Synthetic images that the classifier is trained on."
    )
    epochs: int = Field(default=4, ge=1, le=200, description="Passes over the training images; the last one counts.")
    seeds: int = Field(default=1, ge=1, le=20, description="Repetitions; with two or more the spread is reported.")
    floors: bool = Field(default=True, description="Measure what much simpler private releases would reach.")
    ceiling: bool = Field(default=True, description="Measure what the real training images would reach.")
