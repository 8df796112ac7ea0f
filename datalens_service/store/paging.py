"""Lists in pages: newest first, with a cursor that stays right while rows are added.

Rows are ordered by their exact times, which do not leave: a cursor names a row and its second, and the database looks
up the rest. If the row is gone, the page begins with the whole second, so that nothing is left out.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, func, literal, select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from datalens_service.base.clock import to_second
from datalens_service.base.errors import InvalidInput
from datalens_service.base.parsing import NUL

MAXIMUM_LIMIT = 200
_UNKNOWN = "The cursor is not one that this list handed out; start again without it."

Item = TypeVar("Item")
Row = tuple[InstrumentedAttribute[datetime], InstrumentedAttribute[str]]
"""The columns of a row's creation time and id."""


@dataclass(frozen=True)
class StoredPage(Generic[Item]):
    items: tuple[Item, ...]
    next_cursor: str | None


def list_page(
    connection: Connection | Session,
    query: Select[*tuple[Any, ...]],
    row: Row,
    read: Callable[[Any], Item],
    limit: int,
    cursor: str | None,
) -> StoredPage[Item]:
    """Read one page of a query of columns, newest first."""
    if cursor is not None:
        query = query.where(after(cursor, row))
    created_at, identifier = row
    # One row more than the page says whether there is another page.
    ordered = query.order_by(created_at.desc(), identifier.desc()).limit(check_limit(limit) + 1)
    rows = connection.execute(ordered).all()
    last = rows[limit - 1] if len(rows) > limit else None
    next_cursor = None if last is None else build_cursor(getattr(last, created_at.key), getattr(last, identifier.key))
    return StoredPage(tuple(read(each) for each in rows[:limit]), next_cursor)


def check_limit(limit: int) -> int:
    """Refuse a page of no or too many items.

    Raises:
        InvalidInput: Outside 1..200.
    """
    if not 1 <= limit <= MAXIMUM_LIMIT:
        raise InvalidInput(f"limit must lie between 1 and {MAXIMUM_LIMIT}.")
    return limit


def build_cursor(created_at: datetime, identifier: str) -> str:
    """The cursor that continues after this row."""
    return base64.urlsafe_b64encode(f"{to_second(created_at).isoformat()}|{identifier}".encode()).decode()


def after(cursor: str, row: Row, *elsewhere: Row) -> ColumnElement[bool]:
    """Condition that selects the rows behind `cursor`.

    Args:
        elsewhere: Other tables that may have the row of the cursor, in the order of looking; without any, it is in the
            list.

    Raises:
        InvalidInput: Not a cursor of ours.
    """
    second, last = _parsed(cursor)
    exact = [
        select(at).where(identifier == last).correlate(None).scalar_subquery() for at, identifier in elsewhere or (row,)
    ]
    # The row is gone: all of its second comes again rather than not at all.
    at = func.coalesce(*exact, literal(second + timedelta(seconds=1), row[0].type))
    return tuple_(*row) < tuple_(at, literal(last))


def _parsed(cursor: str) -> tuple[datetime, str]:
    try:
        instant, _, last = base64.urlsafe_b64decode(cursor.encode()).decode().partition("|")
        second = datetime.fromisoformat(instant)
        in_utc = second.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(_UNKNOWN) from error
    if second.tzinfo is None or in_utc.year == MAXYEAR or NUL in last:
        raise InvalidInput(_UNKNOWN)
    return in_utc, last
