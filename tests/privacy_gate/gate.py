"""One detector after the other against one planted bug at a time, and against the product as it is."""

import functools
import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.exc import IntegrityError

from child_programs import in_this_process
from datalens_service.base.audience import NotPublicError
from datalens_service.base.errors import DatalensError, StoreUnavailable
from datalens_service.mechanisms.private_records import WallBroken

from .alarm import Alarm
from .detectors import APART, COMPARISONS, DETECTORS, Detector
from .plant import Plant

_FOLDER = Path(__file__).parent
_MODULES = [import_module(f".{path.stem}", __package__) for path in sorted(_FOLDER.glob("plants_*.py"))]
PLANTS: tuple[Plant, ...] = tuple(
    value for module in _MODULES for value in vars(module).values() if isinstance(value, Plant)
)
"""Of all modules; none of them imports a plant of another."""

CLEAN_RUNS = 20
CLEAN_COMPARISONS = 2
"""Clean runs that compare runs bit by bit, too."""


CATCHES = _FOLDER / "catches.json"
"""Which detector caught which plant, as `scripts/privacy-gate --keep-catches` left it: spares time, decides nothing."""

TRIES = 3
"""Of the detector that caught a plant the last time: noise is drawn anew, and all others take minutes."""


@dataclass(frozen=True)
class Finding:
    """The first alarm of a run: which detector, and what it said."""

    detector: str
    message: str


@functools.cache
def read_catches() -> dict[str, str]:
    """Names of detectors by names of plants."""
    return dict(json.loads(CATCHES.read_text()))


def first_alarm(seed: int, likely: str = "", skipped: tuple[Detector, ...] = ()) -> Finding | None:
    """Run the detectors until one sounds the alarm.

    Args:
        seed: Of the detectors' inputs.
        likely: Name of the detector that runs before all others, because it sounded the alarm the last time.
        skipped: Detectors that do not run.

    A plant may also be stopped by the product: by the wall, by what is public, by one of its errors or by a constraint
    of its database.
    Any other exception, also a statement that the database does not understand, is a fault of the plant.
    """
    with in_this_process():
        return _first_alarm(np.random.default_rng(seed), likely, skipped)


def _first_alarm(rng: np.random.Generator, likely: str, skipped: tuple[Detector, ...]) -> Finding | None:
    chosen = [detector for detector in DETECTORS if detector not in skipped]
    first = [detector for detector in chosen if detector.__name__ == likely]
    for detector in (*first * TRIES, *(one for one in chosen if one not in first)):
        try:
            detector(rng)
        except StoreUnavailable:
            raise
        except (Alarm, WallBroken, NotPublicError, DatalensError, IntegrityError) as alarm:
            return Finding(detector.__name__, str(getattr(alarm, "orig", alarm)))
    return None


def clean_run(number: int) -> Finding | None:
    """The product as it is; the first run has all detectors, some compare runs, the others have those that draw."""
    skipped = COMPARISONS if number >= CLEAN_COMPARISONS else APART if number else ()
    return first_alarm(number, skipped=skipped)


def caught(plant: Plant, seed: int = 0) -> Finding | None:
    """Plant one bug, look for it, take it out again."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            plant.apply(patch)
            return first_alarm(seed, read_catches().get(plant.name, ""))
        except Exception as error:
            error.add_note(f"while this was planted: {plant.name}")
            raise
