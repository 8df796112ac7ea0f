"""One detector after the other against one planted bug at a time, and against the product as it is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from sqlalchemy.exc import IntegrityError

from datalens_service.errors import DatalensError, StoreUnavailable

from . import plants_contributions, plants_gradients, plants_ledger, plants_noise, plants_shards, plants_votes
from .alarm import Alarm
from .detectors import DETECTORS
from .plant import Plant

PLANTS: tuple[Plant, ...] = (
    *plants_shards.PLANTS,
    *plants_votes.PLANTS,
    *plants_noise.PLANTS,
    *plants_ledger.PLANTS,
    *plants_contributions.PLANTS,
    *plants_gradients.PLANTS,
)

CLEAN_RUNS = 20


@dataclass(frozen=True)
class Finding:
    """The first alarm of a run: which detector, and what it said."""

    detector: str
    message: str


def first_alarm(seed: int) -> Finding | None:
    """Run the detectors until one sounds the alarm.

    A plant may also be stopped by the product itself, by one of its errors or by a constraint of its database.
    Any other exception, also a statement that the database does not understand, is a fault of the plant.
    """
    rng = np.random.default_rng(seed)
    for detector in DETECTORS:
        try:
            detector(rng)
        except StoreUnavailable:
            raise
        except (Alarm, DatalensError, IntegrityError) as alarm:
            return Finding(detector.__name__, str(getattr(alarm, "orig", alarm)))
    return None


def caught(plant: Plant, seed: int = 0) -> Finding | None:
    """Plant one bug, look for it, take it out again."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            plant.apply(patch)
            return first_alarm(seed)
        except Exception as error:
            error.add_note(f"while this was planted: {plant.name}")
            raise
