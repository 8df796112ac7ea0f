"""Lists in portions: newest first, with a cursor that stays right while rows are added."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from sqlalchemy import ColumnElement, tuple_
from sqlalchemy.orm import InstrumentedAttribute

from datalens_service.errors import InvalidInput

MAXIMUM_LIMIT = 200

Item = TypeVar("Item")


@dataclass(frozen=True)
class Page(Generic[Item]):
    """One portion of a list.

    Attributes:
        items: Newest first.
        next_cursor: Where the next portion starts; None at the end.
    """

    items: tuple[Item, ...]
    next_cursor: str | None


def check_limit(limit: int) -> int:
    """Refuse a portion of no or too many items.

    Raises:
        InvalidInput: Outside 1..200.
    """
    if not 1 <= limit <= MAXIMUM_LIMIT:
        raise InvalidInput(f"limit must lie between 1 and {MAXIMUM_LIMIT}.")
    return limit


def cursor_of(created_at: datetime, identifier: str) -> str:
    """The cursor that continues after this row."""
    return base64.urlsafe_b64encode(f"{created_at.isoformat()}|{identifier}".encode()).decode()


def after(
    cursor: str, created_at: InstrumentedAttribute[datetime], identifier: InstrumentedAttribute[str]
) -> ColumnElement[bool]:
    """Condition that selects the rows behind `cursor`.

    Raises:
        InvalidInput: Not a cursor of ours.
    """
    try:
        instant, _, last = base64.urlsafe_b64decode(cursor.encode()).decode().partition("|")
        key = (datetime.fromisoformat(instant), last)
    except ValueError as error:
        raise InvalidInput("The cursor is not one that this list handed out; start again without it.") from error
    if key[0].tzinfo is None:
        raise InvalidInput("The cursor is not one that this list handed out; start again without it.")
    return tuple_(created_at, identifier) < tuple_(*key)
