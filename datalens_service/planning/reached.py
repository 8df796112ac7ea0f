"""Results of measured jobs, and expectations of planned ones."""

import math
import statistics
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.methods.expected_quality import Looks

# Three seeds say little about their spread, one nothing: percentage points, and those times the root of the units, of
# seeds of `python -m benchmarks.panel`.
_LEAST_SPREAD: Final = 0.5
_SPREAD_OF_ONE: Final = 150


class Measured(BaseModel):
    """A row of the table: jobs of one preset, size and ε."""

    model_config = ConfigDict(frozen=True)

    dataset: str
    preset: str
    method: str
    units: int
    epsilon: float
    accuracies: tuple[float, ...]
    training_seconds: float
    calibration_seconds: float
    synthetic_images: int
    epochs: int = 0
    judge: int = 1
    commit: str
    machine: str
    channels: int = 1
    side: int = 28
    num_classes: int = 10
    encoder: str | None = None

    @property
    def is_of_images(self) -> bool:
        """Tell whether images were released, and not a classifier."""
        return self.synthetic_images > 0

    @property
    def job(self) -> tuple[str, str, int, float]:
        return self.dataset, self.preset, self.units, self.epsilon

    def seconds_on(self, calibration_seconds: float | None) -> float:
        """Return the seconds of training on a machine with that calibration; None: on the one that measured it."""
        slower = calibration_seconds / self.calibration_seconds if calibration_seconds else 1.0
        return self.training_seconds * slower

    @property
    def mean(self) -> float:
        """Return the mean accuracy in percent."""
        return statistics.mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Return the spread of the accuracy over seeds, in percentage points."""
        measured = len(self.accuracies) > 1
        return max(
            _LEAST_SPREAD, statistics.stdev(self.accuracies) if measured else _SPREAD_OF_ONE / math.sqrt(self.units)
        )


def tell_range(low: float, high: float) -> str:
    """Format a range in whole percent, rounded outwards."""
    return f"{math.floor(low)} to {math.ceil(high)} %"


class Expectation(BaseModel):
    """The results of jobs like this one."""

    model_config = ConfigDict(frozen=True)

    accuracy_low: float = Field(description="Percent, of harder images.")
    accuracy_high: float = Field(description="Percent, of easier ones.")
    measured: bool = Field(default=True, description="Whether such jobs were measured; false for a guess.")
    class_averages_low: float = Field(default=0.0, description="Percent, of noisy class averages; always a guess.")
    class_averages_high: float = Field(default=100.0, description="The same, at most.")
    guessing: float = Field(default=0.0, description="Percent of right labels by guessing, over equal classes.")
    looks: Looks | None = Field(default=None, description="Looks of the images, if the method is known.")
    verdict: str = Field(default="", description="What to expect of the job, and what would improve it.")
    training_seconds: float = Field(
        description="Processor seconds of training on one core of the machine that plans; "
        "drawing and measuring the images come on top."
    )
    memory_bytes: int = Field(default=0, description="Approximate peak memory of the job's process.")
    disk_bytes: int = Field(
        default=0, description="Approximate size of a file of teachers that do not fit into memory."
    )
    basis: str = Field(description="What was measured, in a sentence.")
    warning: str = Field(description="What to change where such jobs are of little use; else empty.")

    @property
    def middle(self) -> float:
        """Return the middle of the range, in percent."""
        return (self.accuracy_low + self.accuracy_high) / 2


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
    accuracy_high: float
    measured: bool = Field(description="False for a guess.")
    looks: Looks | None = Field(description="Looks of the images; null for a classifier.")
    training_seconds: float
    memory_bytes: int


class Comparison(BaseModel):
    """Methods side by side; class averages and guessing are the same for all, and part of the expectation."""

    methods: list[Alternative]
    reason: str = Field(description="A sentence that says why this is the default.")
