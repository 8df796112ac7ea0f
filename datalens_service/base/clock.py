"""The present, and how precisely an instant may be told."""

import math
from datetime import UTC, datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600


def utc_now() -> datetime:
    """The present instant."""
    return datetime.now(UTC)


def to_second(at: datetime) -> datetime:
    """An instant as it may leave: the database orders rows and ends leases by finer times, nobody else needs them."""
    return at.replace(microsecond=0)


def entry_time() -> datetime:
    """The present minute, for whatever is dated while private records are read; `LedgerEntryRow.seq` orders journals.

    Charges leave in the proof of a job (proof/job_charges.py). Finer times would tell how long each step on private
    records took (docs/privacy.md, "Times").
    """
    return utc_now().replace(second=0, microsecond=0)


def duration(seconds: float) -> str:
    """A time span to one unit, rounded up: 12 s, 3 min, 2 h."""
    if seconds < _MINUTE:
        return f"{math.ceil(seconds)} s"
    if seconds < _HOUR:
        return f"{math.ceil(seconds / _MINUTE)} min"
    return f"{math.ceil(seconds / _HOUR)} h"


def remaining(seconds: float) -> str:
    """What is left, by an estimate that is rounded up to minutes: a minute or less, about 3 min."""
    return "a minute or less" if seconds <= _MINUTE else f"about {duration(seconds)}"
