"""The present, and how precisely an instant may be told."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The present instant."""
    return datetime.now(UTC)


def to_second(at: datetime) -> datetime:
    """An instant as it may leave: the database orders rows and ends leases by finer times, nobody else needs them."""
    return at.replace(microsecond=0)


def entry_time() -> datetime:
    """The present minute, for whatever is dated while private records are read; journals are ordered by `seq`.

    Charges leave in the proof of a job (proof/job_charges.py). Finer times would tell how long each step on private
    records took (docs/privacy.md, "Times").
    """
    return utc_now().replace(second=0, microsecond=0)
