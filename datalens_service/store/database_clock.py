"""The one clock that leases are measured by.

Clocks of workers differ. A worker whose clock is a minute fast would find every lease of the others run out, and one
whose clock is slow would take leases that have ended already (docs/decisions/0053-one-queue-one-clock.md).
"""

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from datalens_service.base.clock import utc_now


def read_database_clock(session: Session) -> datetime:
    """The present instant of the server: PostgreSQL's, or this machine's for SQLite, which has no other.

    It advances within a transaction, so what was waited for a lock is not counted as silence of the one that waited.
    """
    if session.get_bind().dialect.name == "sqlite":
        return utc_now()
    now: datetime = session.scalars(select(func.clock_timestamp())).one()
    return now.astimezone(UTC)
