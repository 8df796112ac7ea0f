"""What measured jobs reached, and what is expected of planned ones."""

import statistics
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from datalens_service.methods.appearance import Looks

# Three seeds say little about their spread.
_LEAST_SPREAD: Final = 0.5


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
    epochs: int
    commit: str
    machine: str

    @property
    def job(self) -> tuple[str, str, int, float]:
        """What was run."""
        return self.dataset, self.preset, self.units, self.epsilon

    def seconds_on(self, calibration_seconds: float | None) -> float:
        """Training on a machine with that calibration; None: on the one that measured this row, as busy as it was."""
        slower = calibration_seconds / self.calibration_seconds if calibration_seconds else 1.0
        return self.training_seconds * slower

    @property
    def mean(self) -> float:
        """Accuracy in percent."""
        return statistics.mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Of the accuracy over seeds, in percentage points."""
        return max(_LEAST_SPREAD, statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else 0.0)


class Expectation(BaseModel):
    """What jobs like this one reached."""

    model_config = ConfigDict(frozen=True)

    accuracy_low: float = Field(description="Percent, from the harder data set of the table, less twice its spread.")
    accuracy_high: float = Field(description="Percent, from the easier data set of the table, and twice its spread.")
    measured: bool = Field(default=True, description="Whether such jobs were measured; false for a guess.")
    class_averages_low: float = Field(default=0.0, description="Percent, of noisy class averages; always a guess.")
    class_averages_high: float = Field(default=100.0, description="The same, at most.")
    guessing: float = Field(default=0.0, description="Percent of right labels by guessing, over equal classes.")
    looks: Looks | None = Field(default=None, description="Of images, if the method is known.")
    verdict: str = Field(default="", description="What the job is good for, and what would change that.")
    training_seconds: float = Field(
        description="Processor seconds of training on one core of the machine that plans; "
        "drawing and measuring the images come on top."
    )
    basis: str = Field(description="What was measured, in a sentence.")
    warning: str = Field(description="What to change where such jobs are of little use; else empty.")

    @property
    def middle(self) -> float:
        """Of the range, in percent."""
        return (self.accuracy_low + self.accuracy_high) / 2
