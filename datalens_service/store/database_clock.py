"""The one clock that decides what expires, is deleted or is admitted, and that rows are dated by.

Clocks of machines differ. A worker whose clock is a minute fast would find every lease of the others run out
(docs/decisions/0053-one-queue-one-clock.md); an API host that is days ahead would delete uploads and end sessions, one
that is behind would admit expired keys. No other module may ask a machine for the time, except for what it only shows.

SQLite has no clock but that of the one machine that its file is on.
"""

from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection, select
from sqlalchemy.orm import Session

from datalens_service.base.clock import duration, utc_now  # noqa: TID251 (SQLite's clock, and what is compared)
from datalens_service.base.errors import StoreUnavailable
from datalens_service.store.database import Database
from datalens_service.store.schema.tables import PRESENT

_TOLERATED: Final = timedelta(seconds=5)
_NOW: Final = select(PRESENT)


def read_database_clock(session: Session | Connection) -> datetime:
    """The present instant of the server: PostgreSQL's, or this machine's for SQLite, which has no other.

    It advances within a transaction, so what was waited for a lock is not counted as silence of the one that waited.
    """
    dialect = session.dialect if isinstance(session, Connection) else session.get_bind().dialect
    if dialect.name == "sqlite":
        return utc_now()
    now: datetime = session.scalars(_NOW).one()
    return now.astimezone(UTC)


def read_clock(database: Database) -> datetime:
    """Read the same clock outside of transactions."""
    with database.connection() as connection:
        return read_database_clock(connection)


def check_clock(database: Database) -> None:
    """Check that this machine and the database agree what time it is; with SQLite there is nothing to compare.

    Raises:
        StoreUnavailable: By more than five seconds, and more than the question took.
    """
    before = utc_now()
    now = read_clock(database)
    ahead, behind = before - now, now - utc_now()
    if max(ahead, behind) > _TOLERATED:
        which = "ahead of" if ahead > behind else "behind"
        raise StoreUnavailable(
            f"The clock of an API host is {duration(max(ahead, behind).total_seconds())} {which} the database's, which "
            "decides what expires; synchronise both."
        )
