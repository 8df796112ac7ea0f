"""The results that a plan expects of its job, and of other methods beside it."""

import math

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.methods.expected_quality import Looks


def tell_range(low: float, high: float) -> str:
    """Format a range in whole percent, rounded outwards."""
    return f"{math.floor(low)} to {math.ceil(high)} %"


class Expectation(BaseModel):
    """The results of jobs like this one."""

    model_config = ConfigDict(frozen=True)

    accuracy_low: float = Field(description="Percent of real images that are labelled rightly, of harder images.")
    accuracy_middle: float = Field(default=0.0, description="The same, as likely to be missed as to be reached.")
    accuracy_high: float = Field(description="The same, of easier images.")
    averaged: bool = Field(
        default=True,
        description="Whether accuracies here are means over classes, because `class_shares` were not declared.",
    )
    measured: bool = Field(default=True, description="Whether facts lie among those measured; false for a guess.")
    class_averages_low: float = Field(default=0.0, description="Percent, of noisy class averages.")
    class_averages_high: float = Field(default=100.0, description="The same, at most.")
    real_low: float = Field(default=0.0, description="Percent, of a classifier that learned from the real images.")
    real_high: float = Field(default=100.0, description="The same, at most.")
    guessing: float = Field(default=0.0, description="Percent, of always naming the most frequent class.")
    looks: Looks | None = Field(default=None, description="Looks of the images, if the method is known.")
    verdict: str = Field(default="", description="What to expect of the job, and what would improve it.")
    training_seconds: float = Field(
        description="Processor seconds of training on one core of the machine that plans; `phase_seconds` of the cost "
        "has all phases."
    )
    memory_bytes: int = Field(default=0, description="Approximate peak memory of the job's process.")
    disk_bytes: int = Field(
        default=0, description="Approximate size of a file of teachers that do not fit into memory."
    )
    basis: str = Field(description="What was measured, in a sentence.")
    warning: str = Field(description="What to change where such jobs are of little use; else empty.")


class Alternative(BaseModel):
    """A method that could serve a data set, at the ε of a planned job."""

    model_config = ConfigDict(frozen=True)

    choices: list[str] = Field(
        description="Presets that make it; `teach` is `auto` with that purpose, `pool` the same with public images."
    )
    title: str
    method: str
    default: bool = Field(description="Whether it is the default.")
    needs_public_images: bool
    accuracy_low: float = Field(
        description="Percent of right labels, of the classifier or of one that learned from the images."
    )
    accuracy_middle: float = 0.0
    accuracy_high: float
    best_for_labels: bool = Field(
        default=False, description="Whether it is a classifier that is expected to label better than images teach."
    )
    measured: bool = Field(description="False for a guess.")
    looks: Looks | None = Field(description="Looks of the images; null for a classifier.")
    training_seconds: float
    memory_bytes: int


class Comparison(BaseModel):
    """Methods side by side; class averages and guessing are the same for all, and part of the expectation."""

    methods: list[Alternative]
    reason: str = Field(description="A sentence that says why this is the default.")
