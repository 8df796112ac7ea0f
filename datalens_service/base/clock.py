"""The clock of this machine, and how precisely an instant may be told."""

import math
from datetime import UTC, datetime
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 3600


def utc_now() -> datetime:
    """The present instant by the clock of this machine, for what is shown: the machine may be days off.

    Whatever expires, is deleted or is admitted is decided by `store/database_clock.py`.
    """
    return datetime.now(UTC)  # noqa: TID251 (the one place)


def to_second(at: datetime) -> datetime:
    """Round an instant that leaves to a second; the database keeps finer times to order rows and to end leases."""
    return at.replace(microsecond=0)


def to_minute(at: datetime) -> datetime:
    """Cut an instant that is noted while private records are read; `LedgerEntryRow.seq` orders journals.

    Charges leave in the proof of a job (proof/job_charges.py). Finer times would tell how long each step on private
    records took (docs/privacy.md, "Times").
    """
    return at.replace(second=0, microsecond=0)


def duration(seconds: float) -> str:
    """Format a time span in one unit, rounded up: 12 s, 3 min, 2 h."""
    if seconds < _MINUTE:
        return f"{math.ceil(seconds)} s"
    if seconds < _HOUR:
        return f"{math.ceil(seconds / _MINUTE)} min"
    return f"{math.ceil(seconds / _HOUR)} h"


def remaining(seconds: float) -> str:
    """Format an estimate of the remaining time, rounded up to minutes: a minute or less, about 3 min."""
    return "a minute or less" if seconds <= _MINUTE else f"about {duration(seconds)}"
