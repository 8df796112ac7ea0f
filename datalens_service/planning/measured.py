"""Jobs that were measured: the rows of `measured.jsonl`, made by `benchmarks/forecasts.py`."""

import functools
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

NAMES: Final = {
    "mnist": "written digits",
    "fashion_mnist": "clothes",
    "cifar10": "photographs of things and animals",
    "smiles64": "faces",
    "bccd": "blood cells",
    "signs": "hands",
    "digits": "tiny digits",
    "shapes": "drawn shapes in colour",
    "textures": "textures",
    "glyphs": "36 printed characters",
    "dots": "counted spots",
    "lesions": "faint spots in large grey images",
    "scans": "drawn scans",
    "cells": "drawn cells",
    "products": "silhouettes in colour",
    "scenes": "drawn scenes",
    "bars": "few bars",
}
"""Names of the sets for readers."""
TABLE: Final = Path(__file__).with_name("measured.jsonl")


class Measured(BaseModel):
    """A result on one set of images.

    Attributes:
        made: True for images that code drew.
        shares: Frequencies of the classes.
        choice: A choice of auto, a baseline, or real images, which have no ε.
        accuracy: Percent of right labels of real test images, by the standard CNN or the released classifier.
        balanced: The same as a mean over classes; None of a row that has none.
        discriminant: The same of the linear discriminant of the images; None where there are none.
        majority: Percent of test images in the most frequent class.
        training_seconds: Processor seconds of training and of drawing images.
        judging_seconds: Processor seconds of the standard CNN.
        calibration_seconds: Speed of the machine.
        judge: Version of the standard CNN; figures of the first are not those of today's.
    """

    model_config = ConfigDict(frozen=True)

    dataset: str
    made: bool = False
    height: int
    width: int
    channels: int
    shares: tuple[float, ...]
    units: int
    epsilon: float
    delta: float
    choice: str
    method: str
    encoder: str | None = None
    accuracy: float
    balanced: float | None
    discriminant: float | None = None
    majority: float
    training_seconds: float
    judging_seconds: float
    calibration_seconds: float
    judge: int
    commit: str
    machine: str

    @property
    def num_classes(self) -> int:
        return len(self.shares)

    @property
    def dimensions(self) -> int:
        """Return the numbers per image."""
        return self.channels * self.height * self.width

    def seconds_on(self, calibration_seconds: float | None) -> float:
        """Return the seconds of training on a machine with that calibration; None: on the one that measured it."""
        slower = calibration_seconds / self.calibration_seconds if calibration_seconds else 1.0
        return self.training_seconds * slower


def read_rows() -> tuple[Measured, ...]:
    """Read the table; a file that has changed is read again."""
    return _read(TABLE.stat().st_mtime_ns) if TABLE.exists() else ()


@functools.lru_cache(maxsize=1)
def _read(changed: int) -> tuple[Measured, ...]:
    return tuple(Measured.model_validate_json(line) for line in TABLE.read_text(encoding="utf-8").splitlines())
